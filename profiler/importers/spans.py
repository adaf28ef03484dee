"""Sets of time in whole nanoseconds: sorted, disjoint, non-empty spans stored as two arrays."""

from typing import NamedTuple

import numpy as np

from profiler.importers.columns import Integers, Mask


class Spans(NamedTuple):
    """A set of time, from each start to its end."""

    start: Integers
    end: Integers

    @property
    def total(self) -> int:
        """Return the total length in nanoseconds."""
        return int((self.end - self.start).sum())


def union(start: Integers, end: Integers) -> Spans:
    """Return the time that any of these ranges covers; they may be unsorted and overlap."""
    some = end > start
    start, end = start[some], end[some]
    if not len(start):
        return Spans(start, end)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Spans(start[first], reach[last])


def span(begin: int, end: int) -> Spans:
    """Return the time between two moments."""
    return union(np.array([begin], np.int64), np.array([end], np.int64))


def either(one: Spans, other: Spans) -> Spans:
    """Return the time that at least one of the two covers."""
    return union(*(np.concatenate(both) for both in zip(one, other, strict=True)))


def intersection(one: Spans, other: Spans) -> Spans:
    """Return the time both cover."""
    times, in_one, in_other = _swept(one, other)
    return _kept(times, in_one & in_other)


def difference(one: Spans, other: Spans) -> Spans:
    """Return the time `one` covers and `other` does not."""
    times, in_one, in_other = _swept(one, other)
    return _kept(times, in_one & ~in_other)


def within(spans: Spans, begin: int, end: int) -> Spans:
    """Return the part between two moments."""
    start, stop = np.maximum(spans.start, begin), np.minimum(spans.end, end)
    some = stop > start
    return Spans(start[some], stop[some])


def covers(spans: Spans, moments: Integers) -> Mask:
    """Return whether each moment lies in a span; the end of a span does not belong to it."""
    at = np.searchsorted(spans.start, moments, "right") - 1
    return np.asarray((at >= 0) & (moments < np.append(spans.end, 0)[at]))


def covered(spans: Spans, moments: Integers) -> Integers:
    """Return how many nanoseconds of the spans lie before each moment."""
    before = np.concatenate(([0], np.cumsum(spans.end - spans.start)))
    begun = np.searchsorted(spans.start, moments, "right")
    reach = np.concatenate((moments[:1], spans.end))[begun]
    return np.asarray(before[begun] - np.where(begun > 0, np.maximum(reach - moments, 0), 0))


def _swept(one: Spans, other: Spans) -> tuple[Integers, Mask, Mask]:
    """Return all moments at which a span begins or ends, and what each set covers from there to the next."""
    times = np.concatenate((*one, *other))
    order = np.argsort(times, kind="stable")
    change = np.repeat((1, -1, 0, 0), (len(one.start), len(one.end), len(other.start), len(other.end)))[order]
    of_other = np.repeat((0, 0, 1, -1), (len(one.start), len(one.end), len(other.start), len(other.end)))[order]
    return times[order], np.cumsum(change) > 0, np.cumsum(of_other) > 0


def _kept(times: Integers, covered: Mask) -> Spans:
    if not len(times):
        return Spans(times, times)
    some = covered[:-1]
    return union(times[:-1][some], times[1:][some])
