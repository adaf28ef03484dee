"""Programs on the CUDA stand-in (tests/support/fake_cuda), plain and recorded, and what the stand-in logged about
them."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from programs import COMMAND, Ran

from profiler.store import Tables

PATIENCE = 400.0


def why_not() -> str | None:
    """Return why programs of this interpreter cannot run on the stand-in; None if they can."""
    if sys.platform != "linux":
        return "the stand-in for CUDA needs Linux"
    torch = importlib.util.find_spec("torch")
    if torch is None:
        return "torch is not installed"
    site = Path(torch.submodule_search_locations[0]).parent
    if not (site / "torch/lib/libtorch_cuda.so").exists():
        return "this torch has no CUDA build; run pytest in an environment with torch for CUDA"
    if _library(site) is None:
        return f"the stand-in is not linked: {sys.executable} tests/support/fake_cuda/build.py"
    return None


def _library(site: Path) -> Path | None:
    for name in ("cuda_runtime/lib/libcudart.so.12", "cu13/lib/libcudart.so.13"):
        path = (site / "nvidia" / name).resolve()
        if path.name == "libfakecuda.so" and path.exists():
            return path
    return None


def environment(tag: str) -> dict[str, str]:
    """Return the environment variables with which a program uses the stand-in."""
    site = Path(importlib.util.find_spec("torch").submodule_search_locations[0]).parent
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FAKECUDA_", "CUDA_", "NVIDIA_")) and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return kept | {
        "LD_LIBRARY_PATH": str(_library(site).parent),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FAKECUDA_TAG": tag,
        "TORCH_CUDNN_V8_API_DISABLED": "1",  # the stand-in has the older interface's convolutions
        "OMP_NUM_THREADS": "1",
    }


@dataclass(frozen=True)
class Op:
    """An operation of a simulated GPU. Times are in nanoseconds of the Unix clock."""

    kind: str
    """kernel, copy, set or collective."""
    device: int
    """The device's index as the program counts devices."""
    stream: int
    host: int
    """Time of submission."""
    start: int
    end: int
    bytes: int
    name: str
    """The kernel's name; for a copy, h2d, d2h or d2d."""

    @property
    def seconds(self) -> float:
        """Return the duration, in seconds."""
        return (self.end - self.start) * 1e-9


@dataclass(frozen=True)
class OnGpu(Ran):
    """A program that has ended, and what the stand-in logged about it."""

    truth: Path = field(kw_only=True)
    """The folder with the stand-in's logs."""

    @cached_property
    def tables(self) -> Tables:
        """Return the recording."""
        return super().tables

    @cached_property
    def processes(self) -> dict[int, dict]:
        """Return what each process that launched a kernel called, by kind, and `live`: what it left alive, by
        device."""
        path = self.truth / "counts"
        lines = path.read_text().splitlines() if path.exists() else []
        return {one.pop("pid"): one for one in map(json.loads, lines)}

    @property
    def counts(self) -> Counter[str]:
        """Return the number of calls by kind, for all processes together."""
        total: Counter[str] = Counter()
        for process in self.processes.values():
            total.update({kind: number for kind, number in process.items() if kind != "live"})
        return total

    def live(self, kind: str) -> list[int]:
        """Return what was alive at exit on each GPU, for all processes together: events, streams, contexts, graphs or
        pinned."""
        return [sum(each) for each in zip(*(process["live"][kind] for process in self.processes.values()), strict=True)]

    @property
    def ops(self) -> list[Op]:
        """Return the operations of the GPUs, for all processes."""
        return [op for path in sorted(self.truth.glob("*.tsv")) for op in self.ops_of(int(path.stem))]

    def ops_of(self, pid: int) -> list[Op]:
        """Return the GPU operations of one process, in the order in which their times became known."""
        found = []
        with (self.truth / f"{pid}.tsv").open(newline="") as file:
            for kind, *numbers, name in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                device, stream, host, start, end, size = map(int, numbers)
                found.append(Op(kind, device, stream, host, start, end, size, name))
        return found

    @cached_property
    def result(self) -> dict:
        """Return result.json, for a program that was recorded with a report."""
        return json.loads((self.folder / "result.json").read_text())


class FakeGpu:
    """Simulated GPUs, and programs run on them."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder, self._environ, self._runs = folder, dict(environ), 0

    def run(self, *words, env=None, cwd=None) -> OnGpu:
        """Run a script, or `-m` and a module, without the profiler."""
        return self._run([sys.executable], words, env, cwd, None)

    def record(self, *words, options=("--no-report", "--no-windows"), env=None, cwd=None, out=None) -> OnGpu:
        """Run it under profile-train; without report and windows, unless `options` say otherwise."""
        out = out or self._folder / f"run-{self._runs}"
        return self._run([*COMMAND, *options, "--out", out], words, env, cwd, out)

    def _run(self, command, words, env, cwd, out) -> OnGpu:
        truth = self._folder / f"truth-{self._runs}"
        self._runs += 1
        truth.mkdir()
        tag = uuid.uuid4().hex[:12]
        given = environment(tag) | self._environ | (env or {})
        given |= {"FAKECUDA_COUNTS": str(truth / "counts"), "FAKECUDA_LOG": str(truth)}
        try:
            done = subprocess.run(
                [str(word) for word in (*command, *words)],
                cwd=cwd or self._folder,
                env=given,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
            )
        finally:
            for left in Path("/dev/shm").glob(f"fakecuda-{tag}*"):
                left.unlink(missing_ok=True)
        return OnGpu(done.returncode, done.stdout, done.stderr, out, truth=truth)


def make(
    folder: Path,
    devices: str = "H100:80",
    *,
    speed: float = 1.0,
    kernels: Mapping[str, float] | None = None,
    nvml: Mapping[str, int] | None = None,
    nvml_slow: Mapping[str, float] | None = None,
    processes: str | None = None,
    others: str | None = None,
    breaks_after: int | None = None,
    env: Mapping[str, str] | None = None,
) -> FakeGpu:
    """Return simulated GPUs.

    Args:
        folder: A folder for the output of programs; it is emptied first.
        devices: Model (H100, A100, V100, T4) and GiB of each, in NVML's order; `:mig=2` cuts one into two MIG devices.
        speed: 0.1 makes every kernel without a time in `kernels` ten times slower.
        kernels: Seconds by a part of the kernel's name, or a shell pattern; "gemm 64x32x16" is a matmul's shape.
        nvml: Error codes by NVML function; "*" means all.
        nvml_slow: Seconds that an NVML function takes, by its name.
        processes: "hidden" shows no process on any GPU, "foreign" shows them with PIDs of another namespace.
        others: Other users' programs, "gpu:pid:MiB,...".
        breaks_after: The number of launches after which every call fails, as after a device-side assert.
        env: More environment variables.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environ = {"FAKECUDA_DEVICES": devices, "FAKECUDA_SPEED": str(speed)}
    if kernels:
        environ["FAKECUDA_KERNELS"] = ";".join(f"{pattern}={seconds!r}" for pattern, seconds in kernels.items())
    if nvml:
        environ["FAKECUDA_NVML_FAIL"] = ",".join(f"{name}={code}" for name, code in nvml.items())
    if nvml_slow:
        environ["FAKECUDA_NVML_SLOW"] = ",".join(f"{name}={seconds}" for name, seconds in nvml_slow.items())
    if processes:
        environ["FAKECUDA_NVML_PROCESSES"] = processes
    if others:
        environ["FAKECUDA_OTHERS"] = others
    if breaks_after is not None:
        environ["FAKECUDA_BREAK"] = str(breaks_after)
    return FakeGpu(folder, environ | dict(env or {}))
