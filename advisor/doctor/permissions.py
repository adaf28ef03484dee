"""What the kernel lets us do: look into other processes, and keep trials away from the user's files."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from advisor.doctor.finding import Finding, ok, warning
from profiler import sandbox
from profiler.errors import ProfilerError

CAP_SYS_PTRACE = 19
"""See capability.h."""

PROC = Path("/proc")


def findings(proc: Path = PROC) -> Iterator[Finding]:
    """Of both."""
    yield ptrace(proc)
    yield _trials()


def ptrace(proc: Path = PROC) -> Finding:
    """By Yama's scope (the kernel's documentation of Yama) and our capabilities."""
    scope = _number(proc / "sys/kernel/yama/ptrace_scope", 10)
    capable = bool((_capabilities(proc) >> CAP_SYS_PTRACE) & 1)
    if scope == 3:
        return warning("ptrace", "Switched off until the next boot: running programs cannot be looked into.")
    if not scope or capable:
        return ok("ptrace", "programs of yours can be looked into while they run" if not capable else "allowed")
    return warning(
        "ptrace",
        f"kernel.yama.ptrace_scope is {scope}: programs that already run cannot be looked into.",
        "Only for those it matters: run as root, or: sudo sysctl kernel.yama.ptrace_scope=0",
    )


def _capabilities(proc: Path) -> int:
    try:
        status = (proc / "self/status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    return int(line.split()[1], 16)


def _number(file: Path, otherwise: int | None) -> int | None:
    """None where the file says no number."""
    try:
        return int(file.read_text())
    except FileNotFoundError:  # a kernel without Yama restricts nothing
        return None
    except (OSError, ValueError):
        return otherwise


def _trials() -> Finding:
    """Try it in a process of its own: there is no way out of a sandbox."""
    with tempfile.TemporaryDirectory() as folder:
        covered, scratch = Path(folder) / "covered", Path(folder) / "scratch"
        covered.mkdir()
        scratch.mkdir()
        told, telling = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                sandbox.enter(scratch, [covered], [])
                os.write(telling, b"ok")
            except ProfilerError as error:
                os.write(telling, error.message.encode(errors="replace")[:1000])
            finally:
                os._exit(0)
        os.close(telling)
        os.waitpid(pid, 0)
        said = os.read(told, 1000).decode(errors="replace")
        os.close(told)
    if said == "ok":
        return ok("trials", "`verify` and `tune` can keep what a program writes apart")
    return warning("trials", said or "The sandbox of `verify` and `tune` could not be tried.", sandbox.REMEDY)
