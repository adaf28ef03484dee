"""Sets of time, as sorted lists of disjoint (start, end) pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The time any of `intervals` covers; they may come in any order and overlap."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def intersection(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """The time both cover."""
    return list(_overlaps(first, second))


def difference(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """The time `first` covers and `second` does not."""
    left: list[Interval] = []
    position = 0
    for start, end in first:
        while position < len(second) and second[position][1] <= start:
            position += 1
        at = position
        while at < len(second) and second[at][0] < end:
            if second[at][0] > start:
                left.append((start, second[at][0]))
            start = max(start, second[at][1])
            at += 1
        if start < end:
            left.append((start, end))
    return left


def length(intervals: Iterable[Interval]) -> float:
    """Their total time."""
    return sum(end - start for start, end in intervals)


def _overlaps(first: list[Interval], second: list[Interval]) -> Iterator[Interval]:
    one, two = 0, 0
    while one < len(first) and two < len(second):
        start = max(first[one][0], second[two][0])
        end = min(first[one][1], second[two][1])
        if start < end:
            yield start, end
        if first[one][1] < second[two][1]:
            one += 1
        else:
            two += 1
