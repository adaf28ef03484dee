"""What an imported torch.profiler trace shows about its program."""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.settings import is_trace, primary_rank
from profiler.schema import TraceFact


@metric(None)
def trace(m: Metrics) -> TraceFact:
    """The primary rank's trace. A recording has no value, because it shows the program's settings directly."""
    traces = m[primary_rank].traces
    if not traces or not m.get(is_trace):
        raise Missing("This is not a trace", "Nothing to do: a recording shows the program's settings.")
    return traces[0]


@metric(None)
def traced_workers(m: Metrics) -> bool:
    """Whether the traced program's DataLoader has worker processes."""
    workers = m[trace].workers
    if workers is None:
        raise Missing("The trace contains no DataLoader fetch", "Nothing to do, if the program loads data without one.")
    return workers
