"""Time intervals in whole nanoseconds, as columns: ranges of anything, sets of time, and nesting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Columns = TypeVar("Columns", bound="Intervals")

MOST = 1 << 63


@dataclass(frozen=True, slots=True)
class Intervals:
    """The start and end of each row; subclasses have further columns."""

    start: Integers
    end: Integers

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> Integers:
        """Return the length of each row."""
        return self.end - self.start

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns by name."""
        return {column.name: getattr(self, column.name) for column in fields(self)}

    def where(self: Columns, chosen: Mask | Integers) -> Columns:
        """Return all columns of the chosen rows."""
        return type(self)(**{name: column[chosen] for name, column in self.columns().items()})

    def within(self: Columns, begin: int, end: int) -> Columns:
        """Return the part of each row between two moments, without the rows that have none."""
        parts = replace(self, start=np.maximum(self.start, begin), end=np.minimum(self.end, end))
        return parts.where(parts.end > parts.start)

    def spans(self, chosen: Mask | slice = slice(None)) -> Spans:
        """Return the time covered by any of the chosen rows; by default, by any row."""
        return union(self.start[chosen], self.end[chosen])


@dataclass(frozen=True, slots=True)
class Spans(Intervals):
    """A set of time: the spans are sorted, disjoint and non-empty. `|`, `&` and `-` are set operations."""

    @property
    def total(self) -> int:
        """Return the total length in nanoseconds."""
        return int(self.length.sum())

    def __or__(self, other: Spans) -> Spans:
        return union(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def __and__(self, other: Spans) -> Spans:
        return self._swept(other, lambda left, right: left & right)

    def __sub__(self, other: Spans) -> Spans:
        return self._swept(other, lambda left, right: left & ~right)

    def _swept(self, other: Spans, kept: Callable[[Mask, Mask], Mask]) -> Spans:
        """Return the time to keep, given whether each of the two sets covers it."""
        times = np.concatenate((self.start, self.end, other.start, other.end))
        order = np.argsort(times, kind="stable")
        sizes = (len(self), len(self), len(other), len(other))
        changes = (np.repeat(change, sizes)[order][:-1] for change in ((1, -1, 0, 0), (0, 0, 1, -1)))
        mask = kept(*(np.cumsum(change) > 0 for change in changes))
        return union(times[order][:-1][mask], times[order][1:][mask])

    def covers(self, moments: Integers) -> Mask:
        """Return whether each moment lies in a span; the end of a span does not belong to it."""
        index = np.searchsorted(self.start, moments, "right") - 1
        return np.asarray((index >= 0) & (moments < np.append(self.end, 0)[index]))

    def covered(self, moments: Integers) -> Integers:
        """Return how many nanoseconds of the spans lie before each moment."""
        cumulative = np.concatenate(([0], np.cumsum(self.length)))
        counts = np.searchsorted(self.start, moments, "right")
        reach = np.concatenate((moments[:1], self.end))[counts]
        return np.asarray(cumulative[counts] - np.where(counts > 0, np.maximum(reach - moments, 0), 0))


def union(start: Integers, end: Integers) -> Spans:
    """Return the time that any of these ranges covers; they may be unsorted and overlap."""
    mask = end > start
    start, end = start[mask], end[mask]
    if not len(start):
        return Spans(start, end)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    is_first = np.concatenate(([True], start[1:] > reach[:-1]))
    is_last = np.concatenate((is_first[1:], [True]))
    return Spans(start[is_first], reach[is_last])


def span(begin: int, end: int) -> Spans:
    """Return the time between two moments."""
    return union(np.array([begin], np.int64), np.array([end], np.int64))


class Groups:
    """Rows with the same combination of values; the groups are in the order of their values."""

    def __init__(self, *columns: npt.NDArray[Any]) -> None:
        code = np.zeros(len(columns[0]), np.int64)
        for column in columns:
            low = int(column.min(initial=0))
            width = int(column.max(initial=0)) - low + 1
            if int(code.max(initial=0)) >= MOST // width - 1:
                code = np.unique(code, return_inverse=True)[1]
            code = code * width + (column - low)
        _, self.first, self.of = np.unique(code, return_index=True, return_inverse=True)
        """The row at which each group occurs first, and the group of each row."""

    def __len__(self) -> int:
        return len(self.first)

    def count(self, rows: Mask | Integers | slice = slice(None)) -> Integers:
        """Return the number of rows in each group; if `rows` are given, count only those."""
        return np.bincount(self.of[rows], minlength=len(self))

    def seconds(self, times: Integers, rows: Mask | Integers | slice = slice(None)) -> npt.NDArray[np.floating[Any]]:
        """Return the seconds of each group: the sum of its rows' times, in nanoseconds (only of `rows`, if given)."""
        return np.bincount(self.of[rows], times, minlength=len(self)) * 1e-9


def around(thread: npt.NDArray[np.int32], start: Integers, end: Integers) -> Integers:
    """Return for each range the position of the innermost range around it on its thread; -1 if none.

    If ranges have the same start, the longer contains the shorter; if they are equal, the earlier contains the later.
    """
    parents = np.full(len(start), -1)
    for number in np.unique(thread).tolist():
        rows = np.flatnonzero(thread == number)
        rows = rows[np.lexsort((-end[rows], start[rows]))]
        parents[rows] = _of_a_thread(rows, start[rows], end[rows])
    return parents


def _of_a_thread(rows: Integers, start: Integers, end: Integers) -> Integers:
    """Return the same as `around`, for one thread.

    The depth of a range is the number of ranges before it that have not ended, because ranges of a thread never overlap
    partially.
    """
    ended_count = np.searchsorted(np.sort(end), start, "right")
    # `ended_count` includes zero-length ranges at the same start: subtract the range itself and those after it.
    instant = np.cumsum(end == start)
    last_index = np.searchsorted(start, start, "right") - 1
    ended_count -= instant[last_index] - instant + (end == start)
    # Clock ticks can make a range appear to outlast the one around it, or to end when the next begins.
    depth = np.maximum(np.arange(len(rows)) - ended_count, 0)
    parents = np.full(len(rows), -1)
    outer = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        inner = np.flatnonzero(depth == level)
        if len(outer):
            index = np.searchsorted(outer, inner) - 1
            parents[inner[index >= 0]] = rows[outer[index[index >= 0]]]
        outer = inner
    return parents
