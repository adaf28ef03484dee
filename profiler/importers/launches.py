"""Cost of the host calls that launch GPU work, and how long the work then waits."""

from dataclasses import dataclass

import numpy as np

from profiler.importers.breakdown import SLOW_CALL
from profiler.importers.columns import Integers, Mask
from profiler.importers.work import GpuWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Statistics of launches; times are nanoseconds."""

    calls: int
    work: int
    """Kernels, copies and fills that these calls launched; more than `calls` if CUDA graphs are replayed."""
    unknown: int
    """Work whose call is not in the trace."""
    call_total: int
    call_median: float
    call_p99: float
    slow_calls: int
    """Calls longer than SLOW_CALL."""
    delay_median: float
    """Time from the end of the call to the start of the work, not below zero."""
    delay_p99: float
    delay_total: int
    shorter_than_call: int
    """Launches whose work took less time than the call: the GPU waits for the host."""
    median: float
    """Median length of a kernel, copy or fill."""


def launches(work: GpuWork) -> Launches:
    """Return the statistics of all the work."""
    known = work.where(work.launched)
    first = _first_of_call(known)
    calls = (known.call_end - known.call_start)[first]
    delay = np.maximum(known.start - known.call_end, 0)[first]
    return Launches(
        calls=len(calls),
        work=len(known),
        unknown=len(work) - len(known),
        call_total=int(calls.sum()),
        call_median=_quantile(calls, 0.5),
        call_p99=_quantile(calls, 0.99),
        slow_calls=int((calls > SLOW_CALL).sum()),
        delay_median=_quantile(delay, 0.5),
        delay_p99=_quantile(delay, 0.99),
        delay_total=int(delay.sum()),
        shorter_than_call=int(((known.end - known.start)[first] < calls).sum()),
        median=_quantile(work.end - work.start, 0.5),
    )


def _first_of_call(work: GpuWork) -> Mask:
    """Return which work began first among the work of the same call."""
    chosen = np.zeros(len(work), bool)
    chosen[np.unique(work.call, return_index=True)[1]] = True
    return chosen


def _quantile(values: Integers, q: float) -> float:
    return float(np.quantile(values, q)) if len(values) else 0.0
