"""Let the recorder read this process's memory where Yama allows that to parents only (Ubuntu's default)."""

import sys

SCOPE = "/proc/sys/kernel/yama/ptrace_scope"

_PR_SET_PTRACER = 0x59616D61


def allow(tracer: int) -> None:
    """Allow the process `tracer` and its children to inspect this process.

    No-op unless ptrace_scope is 1 and ctypes is loaded (torch loads it). If the program itself allows a process, that
    replaces this permission. Child processes do not inherit it.
    """
    try:
        with open(SCOPE) as file:
            scope = file.read().strip()
    except OSError:
        return
    ctypes = sys.modules.get("ctypes")
    if scope == "1" and ctypes is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, tracer, 0, 0, 0)
