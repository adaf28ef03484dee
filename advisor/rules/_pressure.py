"""The evidence that rules about memory pressure show."""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.memory import alloc_retries, mem_headroom, oom_count
from advisor.rules.base import Fact


def pressure(m: Metrics) -> tuple[Fact, ...]:
    """Return the facts that `memory_pressure` is derived from.

    They carry no limits, because any one of them may be the reason.
    """
    return (
        Fact(oom_count, m[oom_count]),
        Fact(alloc_retries, m[alloc_retries]),
        Fact(mem_headroom, m[mem_headroom]),
    )
