"""Keep Kineto's messages about the agent's windows off the program's stderr.

The variable KINETO_LOG_LEVEL is read once per process, so setting it would also hide the lines that Kineto prints about
the program's own profiler. Instead, the level is changed in place for the duration of an agent call.
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
"""Log level higher than any message has."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep Kineto from printing; no-op where its level cannot be found."""
    level = _level()
    if level is None:
        yield
        return
    previous_level, level.value = level.value, NOTHING
    try:
        yield
    finally:
        if level.value == NOTHING:  # else Kineto has read its settings meanwhile
            level.value = previous_level


@contextlib.contextmanager
def kept_subscribed() -> Iterator[None]:
    """Keep CUPTI subscribed when a profiler ends here.

    With TEARDOWN_CUPTI=1, a thread of Kineto waits until the program's next CUDA call ends. At the end of a program
    there may be no such call, and the process cannot exit while that thread waits.
    """
    setting = os.environ.get(TEARDOWN)
    if setting is None:
        yield
        return
    posix.putenv(TEARDOWN, "0")  # Kineto reads the C environment; the program's `os.environ` stays unchanged
    try:
        yield
    finally:
        posix.putenv(TEARDOWN, setting)


def _level() -> Any:
    ctypes = sys.modules.get("ctypes")  # torch imports it
    if ctypes is None:
        return None
    try:
        library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        return ctypes.c_int.in_dll(library, LEVEL)
    except (OSError, ValueError, AttributeError):
        return None
