"""Why a process may not be accessed, and which setting allows it."""

import os
import re
from pathlib import Path

from profiler.errors import ProfilerError
from profiler.reading import text

CAPABLE = (
    "Start the container with docker run --cap-add SYS_PTRACE, in Kubernetes with securityContext: "
    '{capabilities: {add: ["SYS_PTRACE"]}}.'
)

OUTSIDE = "To record without hooks: profile-train attach --no-inject {pid}"


def refusal(pid: int, proc: Path = Path("/proc")) -> ProfilerError:
    """Return the error to show after the kernel refused to attach."""
    return ProfilerError(
        f"The kernel does not allow attaching to process {pid}: {_why(pid, proc)}", OUTSIDE.format(pid=pid)
    )


def lifted(proc: Path = Path("/proc")) -> str:
    """Return how to lift the limit of kernel.yama.ptrace_scope here.

    The setting belongs to the machine: a container cannot change it, and only root can use capabilities given to the
    container.
    """
    sysctl = "sudo sysctl kernel.yama.ptrace_scope=0"
    if not is_contained(proc):
        return f"To allow it for all your programs until the next boot: {sysctl}"
    if os.geteuid() == 0:
        return f"{CAPABLE} Or, on the machine itself: {sysctl}"
    return f"On the machine itself, not in the container: {sysctl}"


def _why(pid: int, proc: Path) -> str:
    tracer = re.search(r"^TracerPid:\s*([1-9]\d*)", text(proc / str(pid) / "status"), re.MULTILINE)
    scope = text(proc / "sys/kernel/yama/ptrace_scope").strip()
    if tracer:
        return f"process {tracer[1]} (a debugger or strace) is attached to it already; detach that first."
    if pid == 1 and not re.match(r"python|pt_", text(proc / "1/comm")):  # in a container, it may be the training
        return "it is the first process of the machine or container. Give the PID of the training, as shown by `ps`."
    if scope == "3":
        return "kernel.yama.ptrace_scope is 3, which forbids it until the next boot."
    if scope in ("1", "2"):
        return f"kernel.yama.ptrace_scope is {scope}, which forbids it. {lifted(proc)}"
    if is_contained(proc):
        return f"this container lacks the capability SYS_PTRACE. {CAPABLE}"
    return "a security module (SELinux, AppArmor, seccomp) or the program itself forbids it."


def is_contained(proc: Path) -> bool:
    """Return whether we run in a container."""
    root = proc.parent
    marks = (root / ".dockerenv", root / "run/.containerenv")
    return any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ
