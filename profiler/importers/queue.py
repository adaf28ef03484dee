"""The queue of a stream: work that the host has launched and the GPU has not begun."""

import numpy as np

from profiler.importers.columns import Integers
from profiler.importers.work import GpuWork
from profiler.schema import Waiting


def queue(work: GpuWork, begin: int, end: int) -> Waiting | None:
    """Return the queue of the stream with most launches from `begin` to `end`; None if no launch is known."""
    known = work.where(work.launched)
    streams, launches = np.unique(known.stream, return_counts=True)
    if not len(streams):
        return None
    times, lengths = length(known.where(known.stream == streams[launches.argmax()]))
    # What came before `begin` sets the length that it begins with.
    lasts = np.diff(np.clip(np.append(times, end), begin, end))
    return Waiting(
        mean=float((lengths * lasts).sum() / (end - begin)),
        most=int(lengths[lasts > 0].max(initial=0)),
        empty=1 - float(lasts[lengths > 0].sum() / (end - begin)),
    )


def length(work: GpuWork) -> tuple[Integers, Integers]:
    """Return the moments at which the length of a stream's queue changes, and the length from each on.

    The length grows when a call begins and shrinks when its work begins; if both happen at once, it grows first.
    """
    times = np.concatenate((work.call_start, work.start))
    change = np.repeat((1, -1), len(work))
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(change[order])
