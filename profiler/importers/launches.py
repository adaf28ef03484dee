"""Cost of the host calls that launch GPU work, and how long the work then waits."""

import numpy as np

from profiler.importers.breakdown import SLOW_CALL
from profiler.importers.columns import Integers
from profiler.importers.work import GpuWork
from profiler.schema import Launching


def launches(work: GpuWork) -> Launching | None:
    """Return what the launches of all the work cost; None if the trace has none of the calls."""
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
    """Return for each launching call its length, the delay of its first work, and the length of that, in nanoseconds.

    The delay is the time from the end of the call to the start of the work, not below zero. A call that replays a CUDA
    graph launches several pieces of work.
    """
    known = work.where(work.launched)
    first = known.where(np.unique(known.call, return_index=True)[1])
    return (first.call_end - first.call_start, np.maximum(first.start - first.call_end, 0), first.end - first.start)
