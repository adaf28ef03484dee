"""The evidence that rules about memory pressure show."""

from advisor.metrics.base import Metrics
from advisor.metrics.memory import alloc_retries, mem_headroom, oom_count
from advisor.rules.base import Measurement, measure


def pressure(m: Metrics) -> tuple[Measurement, ...]:
    """Return the facts that `memory_pressure` is derived from.

    They carry no limits, because any one of them may be the reason.
    """
    return measure(m, oom_count), measure(m, alloc_retries), measure(m, mem_headroom)
