"""The evidence that rules about memory pressure show."""

from advisor.metrics import Metrics, memory
from advisor.rules.base import Measurement, measure


def pressure(m: Metrics) -> tuple[Measurement, ...]:
    """Return the facts that `memory_pressure` is derived from.

    They carry no limits, because any one of them may be the reason.
    """
    return measure(m, memory.oom_count), measure(m, memory.alloc_retries), measure(m, memory.mem_headroom)
