"""Build the CUDA stand-in and link it over the CUDA libraries of an environment with torch for CUDA 12 or 13.

python build.py [PYTHON]    link it into the environment of this interpreter (default: the running one)

It is built once per version of the sources and of torch, in $XDG_CACHE_HOME/profile-train/fake_cuda. The libraries that
it replaces stay next to it as *.real; `--undo` restores them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent
REPLACED = {
    12: (
        "cuda_runtime/lib/libcudart.so.12",
        "cublas/lib/libcublas.so.12",
        "cublas/lib/libcublasLt.so.12",
        "cuda_cupti/lib/libcupti.so.12",
        "nccl/lib/libnccl.so.2",
        "cudnn/lib/libcudnn.so.9",
    ),
    13: (
        "cu13/lib/libcudart.so.13",
        "cu13/lib/libcublas.so.13",
        "cu13/lib/libcublasLt.so.13",
        "cu13/lib/libcupti.so.13",
        "nccl/lib/libnccl.so.2",
        "cudnn/lib/libcudnn.so.9",
    ),
}
"""Libraries that the stand-in replaces, below site-packages/nvidia, by CUDA's major version."""

KEPT = {
    12: (
        "cufft/lib/libcufft.so.11",
        "curand/lib/libcurand.so.10",
        "cusolver/lib/libcusolver.so.11",
        "cusparse/lib/libcusparse.so.12",
        "cusparselt/lib/libcusparseLt.so.0",
        "cufile/lib/libcufile.so.0",
        "cuda_nvrtc/lib/libnvrtc.so.12",
        "nvjitlink/lib/libnvJitLink.so.12",
        "nvtx/lib/libnvToolsExt.so.1",
    ),
    13: (
        "cu13/lib/libcufft.so.12",
        "cu13/lib/libcurand.so.10",
        "cu13/lib/libcusolver.so.12",
        "cu13/lib/libcusparse.so.12",
        "cusparselt/lib/libcusparseLt.so.0",
        "cu13/lib/libcufile.so.0",
        "cu13/lib/libnvrtc.so.13",
        "cu13/lib/libnvJitLink.so.13",
        "nvshmem/lib/libnvshmem_host.so.3",
    ),
}
"""Libraries that stay NVIDIA's own where they are installed; elsewhere the stand-in replaces them with functions that
do nothing."""

PREFIXES = re.compile(
    r"(__cuda|cuda[A-Z]|cublas|cupti|nccl[A-Z]|cudnn|cu[A-Z]|cufft|curand|cusolver|cusparse|cuFile|nvrtc|nvJitLink|nvtx|nvshmem)"
)
STUB = """#include <stdio.h>
#include <stdlib.h>
static int nothing(const char* name) {
    if (getenv("FAKECUDA_TRACE")) fprintf(stderr, "fakecuda: %s does nothing\\n", name);
    return 0;
}
"""


def site_of(python: str) -> Path:
    """Return the site-packages that hold torch, as `python` finds it, without importing it."""
    found = subprocess.run(
        [python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(found.stdout.strip()).parent


def build(site: Path) -> Path:
    """Return the folder with libfakecuda.so for this torch; build it if it is not there."""
    sources = sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h"), Path(__file__)])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    digest.update((site / "torch/version.py").read_bytes() + " ".join(_installed(site)).encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "profile-train/fake_cuda"
    folder = cache / digest.hexdigest()[:16]
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        _compile(site, made)
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            if not folder.exists():
                raise
    return folder


def link(site: Path, folder: Path) -> None:
    """Replace the environment's CUDA libraries with links to the stand-in."""
    absent = [name for name in KEPT[_major(site)] if name not in _installed(site)]
    for name in (*REPLACED[_major(site)], *absent):
        place = site / "nvidia" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and not place.is_symlink():
            place.rename(f"{place}.real")
        fresh = place.with_name(f".{place.name}.{os.getpid()}")
        fresh.symlink_to(folder / "libfakecuda.so")
        fresh.replace(place)


def unlink(site: Path) -> None:
    """Restore NVIDIA's own libraries."""
    for place in (site / "nvidia" / name for name in REPLACED[_major(site)]):
        if (real := place.with_name(f"{place.name}.real")).exists():
            real.replace(place)


def _installed(site: Path) -> list[str]:
    return [name for name in KEPT[_major(site)] if (path := site / "nvidia" / name).exists() and not path.is_symlink()]


def _major(site: Path) -> int:
    """Return the major version of the CUDA that torch was built for."""
    found = re.search(r"^cuda\b.*?'(\d+)\.", (site / "torch/version.py").read_text(), re.MULTILINE)
    if not found or int(found[1]) not in REPLACED:
        sys.exit(f"{site}/torch was not built for CUDA {' or '.join(map(str, REPLACED))}.")
    return int(found[1])


def _symbols(path: Path, which: str) -> set[str]:
    out = subprocess.run(["nm", which, *(["-D"] if ".so" in path.name else []), path], capture_output=True, text=True)
    return {line.split()[-1].partition("@")[0] for line in out.stdout.splitlines() if line.strip()}


def _compile(site: Path, out: Path) -> None:
    include = site / "triton/backends/nvidia/include"  # Triton brings all of CUDA's headers
    objects = []

    def compiled(source: Path) -> None:
        made = out / f"{source.stem}.o"
        objects.append(made)
        _run("g++", "-std=c++17", "-O1", "-g", "-fPIC", f"-I{include}", "-c", source, "-o", made)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiled, sorted(SOURCES.glob("*.cpp"))))
    stubs = out / "stubs.c"
    stubs.write_text(_stubs(site, objects) + _callback_names(include))
    _run("gcc", "-O1", "-fPIC", "-w", "-fno-builtin", "-c", stubs, "-o", out / "stubs.o")
    library = out / "libfakecuda.so"
    _run("g++", "-shared", "-Wl,-soname,libfakecuda.so", "-o", library, *objects, out / "stubs.o", "-ldl", "-lpthread")
    for name in ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"):
        (out / name).symlink_to("libfakecuda.so")
    for path in (*objects, out / "stubs.o"):
        path.unlink()


def _stubs(site: Path, objects: list[Path]) -> str:
    """Return functions that do nothing, for all symbols that torch, Triton and NVIDIA's libraries need and no library
    defines."""
    users = [path for path in (site / "torch/lib").glob("*.so*") if path.is_file()]
    kept = [site / "nvidia" / name for name in _installed(site)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wanted = set().union(*pool.map(lambda path: _symbols(path, "--undefined-only"), [*users, *kept]))
        theirs = set().union(*pool.map(lambda path: _symbols(path, "--defined-only"), kept))
        ours = set().union(*pool.map(lambda path: _symbols(path, "--defined-only"), objects))
    triton = site / "triton/backends/nvidia/driver.c"
    if triton.exists():  # Triton looks these up by name
        names = set(re.findall(r"\bcu(?!da|Types)[A-Z][A-Za-z0-9_]*", triton.read_text()))
        wanted |= names | {f"{name}_v2" for name in names}
    missing = sorted(name for name in wanted - theirs - ours if PREFIXES.match(name))
    return STUB + "".join(f'int {name}(void) {{ return nothing("{name}"); }}\n' for name in missing)


def _callback_names(include: Path) -> str:
    """Return the function that names CUPTI's callbacks."""
    cases = {}
    for driver, kind in enumerate(("runtime", "driver")):
        header = (include / f"cupti_{kind}_cbid.h").read_text()
        found = re.findall(rf"CUPTI_{kind.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)\b", header)
        cases[driver] = "".join(f'case {number}: return "{name}"; ' for name, number in found)
    return f"""const char* fakecuda_callback_name(int driver, unsigned id) {{
    if (driver) switch (id) {{ {cases[1]} default: return 0; }}
    switch (id) {{ {cases[0]} default: return 0; }}
}}
"""


def _run(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(str(word) for word in words)} failed:\n{done.stderr}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="?", default=sys.executable)
    parser.add_argument("--undo", action="store_true")
    options = parser.parse_args()
    if not shutil.which("g++"):
        sys.exit("There is no g++ here. Install a C++ compiler.")
    site = site_of(options.python)
    if options.undo:
        unlink(site)
        return
    folder = build(site)
    link(site, folder)
    print(folder)


if __name__ == "__main__":
    main()
