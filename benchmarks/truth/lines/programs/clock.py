"""Shared by the programs: how long they train, and whether their fault is removed (`--fixed`)."""

import json
import os
import sys
import time

FIXED = "--fixed" in sys.argv
WARM_UP = 3
"""Calls before timing starts: the first step imports much of torch."""
_calls, _begin, _end = 0, 0.0, float("inf")


def running():
    """Return whether to continue; at the end, write the mean seconds from one call to the next to $SECONDS_PER_STEP."""
    global _calls, _begin, _end
    _calls += 1
    if _calls == WARM_UP:
        _begin = _undisturbed()
        _end = time.monotonic() + float(os.environ.get("SECONDS", "8"))
    if time.monotonic() < _end:
        return True
    if path := os.environ.pop("SECONDS_PER_STEP", ""):
        with open(path, "w") as file:
            json.dump((_undisturbed() - _begin) / (_calls - WARM_UP), file)
    return False


def _undisturbed():
    """Return the time, minus what this thread spent waiting for a core that other programs used."""
    with open("/proc/thread-self/schedstat") as file:
        return time.monotonic() - int(file.read().split()[1]) / 1e9
