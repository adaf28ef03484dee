"""Check the program's Python and torch, in a separate process, against the driver."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from advisor.doctor.finding import CheckResult, fix, ok, warning
from advisor.metrics.stack import has_code_for, major
from profiler.agent import installed
from profiler.schema import DeviceFact, Gpu

PATIENCE = 120.0
"""Longest time to import torch from a slow disk and start CUDA on several GPUs, in seconds."""

OLDEST_PYTHON = (3, 9)
OLDEST_TORCH = (2, 4)

BUILDS = "https://pytorch.org/get-started/locally/"


@dataclass(frozen=True, slots=True)
class Torch:
    """Facts reported by the program's Python; None if it did not report one."""

    interpreter: str
    python: str | None = None
    version: str | None = None
    """Version of torch; None if it is not installed."""
    cuda: str | None = None
    hip: str | None = None
    threads: int | None = None
    architectures: tuple[str, ...] = ()
    devices: tuple[DeviceFact, ...] = ()
    kernels: int | None = None
    """Number of kernels that its profiler saw, of two or three; None without a GPU to try it on."""
    error: str = ""


def ask(interpreter: str) -> Torch:
    """Return what an interpreter reports. Never raises."""
    path = str(Path(interpreter).absolute()) if os.sep in interpreter else shutil.which(interpreter) or interpreter
    try:
        process = subprocess.run(
            [path, str(Path(installed.__file__))],
            cwd="/",  # modules in the user's current folder must not shadow ours
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Torch(interpreter, error=f"It did not answer within {PATIENCE:.0f} s.")
    except OSError as error:
        return Torch(interpreter, error=f"It could not be started: {error.strerror or error}.")
    try:
        return msgspec.json.decode(process.stdout.rstrip().rpartition("\n")[2], type=Torch)
    except msgspec.MsgspecError:
        last_line = (process.stderr.strip() or process.stdout.strip() or "It printed nothing").splitlines()[-1]
        return Torch(interpreter, error=f"It ended with status {process.returncode}: {last_line}")


def findings(torch: Torch, gpus: Sequence[Gpu]) -> Iterator[CheckResult]:
    """Yield the findings on Python, torch, and whether torch, driver and GPUs are compatible."""
    if torch.python is None:
        yield fix("python", f"{torch.interpreter}: {torch.error}", "Activate the environment of your program.")
        return
    yield _python(torch)
    if torch.version is None:
        reason = f" ({torch.error})" if torch.error else ""
        yield fix(
            "torch",
            f"{torch.interpreter} has no torch{reason}.",
            f"Activate the environment of your program, or install torch: {BUILDS}",
        )
        return
    yield _torch(torch)
    yield _fit(torch, gpus)
    if torch.kernels is not None:
        yield _kernels(torch.kernels)


def _python(torch: Torch) -> CheckResult:
    sentence = f"{torch.python}, {torch.interpreter}"
    if _numbers(torch.python) < OLDEST_PYTHON:
        return fix("python", f"{sentence}: too old to be recorded.", "Train on Python 3.9 or newer.")
    return ok("python", sentence)


def _torch(torch: Torch) -> CheckResult:
    build = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "CPU only"
    kinds = f", code for {' '.join(torch.architectures)}" if torch.architectures else ""
    sentence = f"{torch.version} ({build}{kinds})"
    if _numbers(torch.version) < OLDEST_TORCH:
        return warning("torch", f"{sentence}: older than the tested versions.", "Update to torch 2.4 or newer.")
    return ok("torch", sentence)


def _fit(torch: Torch, gpus: Sequence[Gpu]) -> CheckResult:
    """Check whether torch can use the GPUs that the driver reports."""
    name = "torch and GPU"
    if unsupported := [device for device in torch.devices if not has_code_for(device)]:
        capability = ".".join(map(str, unsupported[0].capability or ()))
        return fix(
            name,
            f"This torch build has no code for {unsupported[0].name} (compute capability {capability}).",
            f"Install a build that has: {BUILDS}",
        )
    if torch.devices:
        return ok(name, f"torch sees {', '.join(device.name for device in torch.devices)}")
    if not gpus:
        if torch.cuda:
            reason = torch.error.splitlines()[0] if torch.error else "no GPU was found"
            return warning(name, f"torch is built for CUDA, but: {reason}", "Without a GPU, training runs on the CPU.")
        return ok(name, "No GPU: training runs on the CPU")
    if torch.cuda is None and torch.hip is None:
        return fix(
            name, f"This torch build is CPU-only; {gpus[0].name} is not used.", f"Install a CUDA build: {BUILDS}"
        )
    driver_major, build_major = major(gpus[0].cuda_driver), major(torch.cuda)
    if driver_major is not None and build_major is not None and driver_major < build_major:
        return fix(
            name,
            f"torch is built for CUDA {torch.cuda}, but the driver supports at most {gpus[0].cuda_driver}.",
            f"Update the driver, or install a build for CUDA {gpus[0].cuda_driver}: {BUILDS}",
        )
    reason = torch.error.splitlines()[0] if torch.error else "torch.cuda.is_available() is False"
    return fix(name, f"torch cannot use {gpus[0].name}: {reason}", "Check CUDA_VISIBLE_DEVICES and /dev/nvidia*.")


def _kernels(seen: int) -> CheckResult:
    if seen:
        return ok("kernels (CUPTI)", "torch.profiler sees kernels")
    return warning(
        "kernels (CUPTI)",
        "torch.profiler recorded no kernel: recordings will have no kernel details.",
        "Stop other profilers (nsys, ncu, DCGM profiling), or allow profiling: NVreg_RestrictProfilingToAdminUsers=0.",
    )


def _numbers(version: str | None) -> tuple[int, ...]:
    """Return the version's numbers: "2.13.0+cpu" as (2, 13)."""
    parts = (version or "").split(".")[:2]
    return tuple(int("".join(letter for letter in part if letter.isdigit()) or 0) for part in parts)
