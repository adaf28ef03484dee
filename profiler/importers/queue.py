"""The queue of each stream: work that the host has launched and the GPU has not begun."""

from dataclasses import dataclass

import numpy as np

from profiler.importers.columns import Integers
from profiler.importers.work import GpuWork

FULL = 1000
"""Pieces of work from which a stream counts as full: the driver holds 1024, then its calls wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The queue of one stream between two moments."""

    stream: int
    """Position among the trace's streams."""
    launches: int
    most: int
    mean: float
    """Mean length over time."""
    empty: float
    """Fraction of the time in which nothing waited, 0 to 1."""
    full: float
    """Fraction of the time in which FULL or more waited, 0 to 1."""


def queues(work: GpuWork, begin: int, end: int) -> tuple[Queue, ...]:
    """Return the queue of every stream whose launches are known; most launches first."""
    found = []
    for stream in np.unique(work.stream[work.launched]).tolist():
        times, lengths = length(work.where(work.launched & (work.stream == stream)))
        # What came before `begin` sets the length that it begins with.
        edges = np.clip(np.concatenate((times, [end])), begin, end)
        lasts = np.diff(edges)
        whole = end - begin
        found.append(
            Queue(
                stream=stream,
                launches=len(times) // 2,
                most=int(lengths[lasts > 0].max(initial=0)),
                mean=float((lengths * lasts).sum() / whole) if whole else 0.0,
                empty=1 - float(lasts[lengths > 0].sum() / whole) if whole else 1.0,
                full=float(lasts[lengths >= FULL].sum() / whole) if whole else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda queue: (-queue.launches, queue.stream)))


def length(work: GpuWork) -> tuple[Integers, Integers]:
    """Return the moments at which the length of a stream's queue changes, and the length from each on.

    The length grows when a call begins and shrinks when its work begins; if both happen at once, it grows first.
    """
    times = np.concatenate((work.call_start, work.start))
    change = np.repeat((1, -1), len(work))
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(change[order])
