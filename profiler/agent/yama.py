"""Let the recorder read this process's memory where Yama allows that to parents only (Ubuntu's default)."""

import sys

SCOPE = "/proc/sys/kernel/yama/ptrace_scope"

_PR_SET_PTRACER = 0x59616D61


def allow(tracer: int) -> None:
    """Name the process that may look into this one, with its children.

    Nothing happens unless ptrace_scope is 1, or if ctypes is not loaded (torch loads it). A call of the program's own
    takes its place, and processes that this one starts do not inherit it.
    """
    try:
        with open(SCOPE) as file:
            scope = file.read().strip()
    except OSError:
        return
    ctypes = sys.modules.get("ctypes")
    if scope == "1" and ctypes is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, tracer, 0, 0, 0)
