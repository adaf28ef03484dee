"""Check the kernel's permissions: to inspect other processes, and to isolate trials from files."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from advisor.doctor.finding import CheckResult, ok, warning
from advisor.doctor.stack import Torch
from profiler import sandbox
from profiler.attach import inject, rights
from profiler.errors import ProfilerError
from profiler.reading import has_capability
from profiler.recorder.stacks import sampler

CAP_SYS_PTRACE = 19
"""Number of CAP_SYS_PTRACE in capability.h."""

UNKNOWN = 10
"""Yama scope assumed if it cannot be read; it counts as restricted."""

PROC = Path("/proc")


def findings(torch: Torch, proc: Path = PROC) -> Iterator[CheckResult]:
    """Yield the findings on all permissions."""
    yield ptrace(proc)
    yield attach(torch, proc)
    yield stacks(proc)
    yield _trials()


def ptrace(proc: Path = PROC) -> CheckResult:
    """Check whether other processes can be inspected.

    This follows Yama's scope (the kernel's documentation of Yama) and the process's capabilities.
    """
    scope, capable = _yama(proc)
    if scope == 3:
        return warning("ptrace", "Disabled until the next boot: profile-train cannot attach to running programs.")
    if not scope or capable:
        return ok("ptrace", "profile-train can attach to your running programs" if not capable else "allowed")
    return warning(
        "ptrace",
        f"kernel.yama.ptrace_scope is {scope}: profile-train cannot attach to programs that are already running.",
        f"This matters only for those. {rights.lifted(proc)}",
    )


def stacks(proc: Path = PROC) -> CheckResult:
    """Check whether Python stacks of programs that are started with profile-train can be sampled."""
    scope, capable = _yama(proc)
    program = sampler.executable()
    if program is None:
        return warning("stacks", "py-spy was not found: reports do not show lines of code.", "pip install py-spy")
    if scope == 3 or (scope not in (None, 0, 1) and not capable):
        remedy = rights.lifted(proc) if scope != 3 else ""
        return warning("stacks", f"kernel.yama.ptrace_scope is {scope}: reports do not show lines of code.", remedy)
    refusal = sampler.refusal(program)
    if refusal:
        remedy = rights.CAPABLE if rights.is_contained(proc) else ""
        return warning("stacks", f"Reports do not show lines of code: {refusal}.", remedy)
    return ok("stacks", "programs started with profile-train can be sampled")


def attach(torch: Torch, proc: Path = PROC) -> CheckResult:
    """Check how `attach` would inject code into a program that runs this Python."""
    if not (proc / "self/maps").exists():
        return ok("attach", "Not available: it requires Linux. You can still start programs with profile-train")
    version = ".".join((torch.python or "").split(".")[:2])
    try:
        return ok("attach", inject.way(os.getpid(), {f"python{version}"}).value)
    except ProfilerError as error:
        return warning("attach", error.message, error.remedy)


def _yama(proc: Path) -> tuple[int | None, bool]:
    """Return Yama's scope, None for a kernel without Yama, and whether a capability lifts its limits."""
    try:
        scope: int | None = int((proc / "sys/kernel/yama/ptrace_scope").read_text())
    except FileNotFoundError:
        scope = None
    except (OSError, ValueError):
        scope = UNKNOWN
    return scope, has_capability(CAP_SYS_PTRACE, proc)


def _trials() -> CheckResult:
    """Check whether the sandbox works, in a child process, because a process cannot leave a sandbox."""
    with tempfile.TemporaryDirectory() as folder:
        covered, scratch = Path(folder) / "covered", Path(folder) / "scratch"
        covered.mkdir()
        scratch.mkdir()
        reader, writer = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                sandbox.enter(scratch, [covered], [])
                os.write(writer, b"ok")
            except ProfilerError as error:
                os.write(writer, error.message.encode(errors="replace")[:1000])
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(pid, 0)
        answer = os.read(reader, 1000).decode(errors="replace")
        os.close(reader)
    if answer == "ok":
        return ok("trials", "`verify` and `tune` can isolate the files that a program writes")
    return warning("trials", answer or "The sandbox of `verify` and `tune` could not be tested.", sandbox.REMEDY)
