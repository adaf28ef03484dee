"""What the programs share: for how long they train, and whether their fault is taken out (`--fixed`)."""

import os
import sys
import time

FIXED = "--fixed" in sys.argv
WARM_UP = 3
"""Calls before the time counts: the first step imports much of torch."""
_calls, _end = 0, float("inf")


def running():
    global _calls, _end
    _calls += 1
    if _calls == WARM_UP:
        _end = time.monotonic() + float(os.environ.get("SECONDS", "8"))
    return time.monotonic() < _end
