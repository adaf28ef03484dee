import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "support" / "stub_nvml" / "libnvidia-ml.c"


class StubNvml:
    """The stand-in library, built, with the values that it returns."""

    def __init__(self, folder, values):
        self.folder = folder
        self.values = values

    @property
    def calls(self):
        """Return the calls so far, as "function gpu"."""
        log = Path(f"{self.values}.calls")
        return log.read_text().splitlines() if log.exists() else []

    def says(self, **values):
        """Set exactly these values: gpus=2, or **{"0.power": 1000}; a list makes several lines with one key."""
        lines = []
        for key, value in values.items():
            for one in value if isinstance(value, list) else [value]:
                lines.append(f"{key} {one}\n")
        self.values.write_text("".join(lines))


@pytest.fixture(scope="session")
def build_nvml(tmp_path_factory):
    if sys.platform != "linux" or not shutil.which("gcc"):
        pytest.skip("needs Linux and gcc to build the stand-in for NVML")

    def build(*missing):
        folder = tmp_path_factory.mktemp("nvml")
        exports = folder / "exports"
        exports.write_text(f"{{ global: nvml*; local: {' '.join(f'{name};' for name in missing)} *; }};")
        target = folder / "libnvidia-ml.so.1"
        version_script = f"-Wl,--version-script={exports}"
        subprocess.run(["gcc", "-shared", "-fPIC", version_script, "-o", target, SOURCE], check=True)
        return folder

    return build


@pytest.fixture(scope="session")
def nvml_folder(build_nvml):
    return build_nvml()


@pytest.fixture
def nvml(nvml_folder, tmp_path, monkeypatch):
    """Replace NVML with the stand-in, in this process and (LD_LIBRARY_PATH) in those it starts."""
    stub = StubNvml(nvml_folder, tmp_path / "values")
    stub.says()
    path = os.pathsep.join(filter(None, [str(nvml_folder), os.environ.get("LD_LIBRARY_PATH")]))
    monkeypatch.setenv("LD_LIBRARY_PATH", path)
    monkeypatch.setenv("NVML_STUB", str(stub.values))
    inject(monkeypatch, nvml_folder)
    return stub


@pytest.fixture
def without(nvml, build_nvml, monkeypatch):
    """Return a function that replaces NVML with an older version without the functions named `missing`."""
    return lambda *missing: inject(monkeypatch, build_nvml(*missing))


def inject(monkeypatch, folder):
    pynvml = pytest.importorskip("pynvml")
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(folder / "libnvidia-ml.so.1")))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
