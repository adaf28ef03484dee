"""The evidence that rules about memory pressure show."""

from advisor.metrics.base import Metrics
from advisor.metrics.memory import alloc_retries, mem_headroom, oom_count
from advisor.rules.base import Measurement, measured


def pressure(m: Metrics) -> tuple[Measurement, ...]:
    """Return the facts that `memory_pressure` is derived from.

    They carry no limits, because any one of them may be the reason.
    """
    return measured(m, oom_count), measured(m, alloc_retries), measured(m, mem_headroom)
