"""Keep Kineto's messages about the agent's windows off the program's stderr.

The variable KINETO_LOG_LEVEL is read once a process, so setting it would also hide the lines that Kineto prints about
the program's own profiler. The level is changed in place instead, for as long as a call of the agent's takes.
"""

import contextlib
import os
import posix
import sys
from collections.abc import Iterator
from typing import Any

LIBRARY, LEVEL = "libtorch_cpu.so", "_ZN9libkineto6Logger14severityLevel_E"
TEARDOWN = "TEARDOWN_CUPTI"
NOTHING = 100
"""A level above that of every message."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Have Kineto print nothing; no-op where its level cannot be found."""
    level = _level()
    if level is None:
        yield
        return
    before, level.value = level.value, NOTHING
    try:
        yield
    finally:
        if level.value == NOTHING:  # else Kineto has read its settings meanwhile
            level.value = before


@contextlib.contextmanager
def kept_subscribed() -> Iterator[None]:
    """Have a profiler that ends here leave CUPTI subscribed.

    With TEARDOWN_CUPTI=1, Kineto has a thread wait until the program's next call of CUDA ends. At the end of a program
    there may be none, and the process cannot exit while that thread waits.
    """
    wanted = os.environ.get(TEARDOWN)
    if wanted is None:
        yield
        return
    posix.putenv(TEARDOWN, "0")  # Kineto asks the environment itself, and the program's own view stays as it is
    try:
        yield
    finally:
        posix.putenv(TEARDOWN, wanted)


def _level() -> Any:
    ctypes = sys.modules.get("ctypes")  # torch imports it
    if ctypes is None:
        return None
    try:
        library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        return ctypes.c_int.in_dll(library, LEVEL)
    except (OSError, ValueError, AttributeError):
        return None
