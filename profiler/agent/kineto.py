"""Keep Kineto's messages about the agent's windows off the program's stderr.

The variable KINETO_LOG_LEVEL is read once a process, so setting it would also hide the lines that Kineto prints about
the program's own profiler. The level is changed in place instead, for as long as a call of the agent's takes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

LIBRARY, LEVEL = "libtorch_cpu.so", "_ZN9libkineto6Logger14severityLevel_E"
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


def _level() -> Any:
    ctypes = sys.modules.get("ctypes")  # torch imports it
    if ctypes is None:
        return None
    try:
        library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        return ctypes.c_int.in_dll(library, LEVEL)
    except (OSError, ValueError, AttributeError):
        return None
