"""Cost of the host calls that launch GPU work, how long the work then waits, and the queue of a stream."""

import numpy as np

from profiler.importers.intervals import Integers
from profiler.importers.work import SLOW_CALL, GpuWork
from profiler.schema import Launching, Waiting


def launches(work: GpuWork) -> Launching | None:
    """Return the cost of launching all the work; None if the trace has none of the launching calls."""
    calls, delays, lengths = costs(work)
    if not len(calls):
        return None
    return Launching(
        calls=len(calls),
        median=float(np.quantile(calls, 0.5)) * 1e-9,
        p99=float(np.quantile(calls, 0.99)) * 1e-9,
        slow=int((calls > SLOW_CALL).sum()),
        delay=float(np.quantile(delays, 0.5)) * 1e-9,
        shorter=int((lengths < calls).sum()) / len(calls),
    )


def costs(work: GpuWork) -> tuple[Integers, Integers, Integers]:
    """Return, for each launching call, its length and the delay and length of its first piece of work, in nanoseconds.

    The delay is the time from the end of the call to the start of the work, not below zero. A call that replays a CUDA
    graph launches several pieces of work.
    """
    launched_work = work.where(work.launched)
    pieces = launched_work.where(np.unique(launched_work.call, return_index=True)[1])
    return (pieces.call_end - pieces.call_start, np.maximum(pieces.start - pieces.call_end, 0), pieces.length)


def queue(work: GpuWork, begin: int, end: int) -> Waiting | None:
    """Return the queue of the stream with the most launches, from `begin` to `end`; None if no launch is known."""
    launched_work = work.where(work.launched)
    streams, launches = np.unique(launched_work.stream, return_counts=True)
    if not len(streams):
        return None
    times, lengths = length(launched_work.where(launched_work.stream == streams[launches.argmax()]))
    # Changes before `begin` determine the initial length.
    durations = np.diff(np.clip(np.append(times, end), begin, end))
    return Waiting(
        mean=float((lengths * durations).sum() / (end - begin)),
        most=int(lengths[durations > 0].max(initial=0)),
        empty=1 - float(durations[lengths > 0].sum() / (end - begin)),
    )


def length(work: GpuWork) -> tuple[Integers, Integers]:
    """Return the moments at which the length of a stream's queue changes, and the length from each moment on.

    The length grows when a call begins and shrinks when its work begins; if both happen at once, it grows first.
    """
    times = np.concatenate((work.call_start, work.start))
    change = np.repeat((1, -1), len(work))
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(change[order])
