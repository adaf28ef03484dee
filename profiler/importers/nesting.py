"""Nesting of the ranges of a thread: find the innermost range around each."""

import numpy as np
import numpy.typing as npt

from profiler.importers.columns import Integers


def around(thread: npt.NDArray[np.int32], start: Integers, end: Integers) -> Integers:
    """Return for each range the position of the innermost range around it on its thread; -1 if none.

    Of ranges that start together the longer contains the shorter; of equal ones the earlier contains the later.
    """
    found = np.full(len(start), -1)
    for number in np.unique(thread).tolist():
        rows = np.flatnonzero(thread == number)
        rows = rows[np.lexsort((-end[rows], start[rows]))]
        found[rows] = _of_a_thread(rows, start[rows], end[rows])
    return found


def _of_a_thread(rows: Integers, start: Integers, end: Integers) -> Integers:
    """Return the same for one thread.

    A range lies as deep as the number of ranges before it that have not ended, because ranges of a thread never overlap
    partially.
    """
    ended = np.searchsorted(np.sort(end), start, "right")
    # Of those ranges one without length, and its like behind it, have not ended before it.
    instant = np.cumsum(end == start)
    behind = np.searchsorted(start, start, "right") - 1
    ended -= instant[behind] - instant + (end == start)
    # A clock's ticks may let a range seem to outlast the one around it, or to end as the next begins.
    depth = np.maximum(np.arange(len(rows)) - ended, 0)
    found = np.full(len(rows), -1)
    outer = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        inner = np.flatnonzero(depth == level)
        if len(outer):
            at = np.searchsorted(outer, inner) - 1
            found[inner[at >= 0]] = rows[outer[at[at >= 0]]]
        outer = inner
    return found
