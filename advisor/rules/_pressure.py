"""What rules that need memory to be short show of it."""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.memory import alloc_retries, mem_headroom, oom_count
from advisor.rules.base import Fact


def pressure(m: Metrics) -> tuple[Fact, ...]:
    """Without limits: any one of them may be what `memory_pressure` comes from."""
    return (
        Fact(oom_count, m[oom_count]),
        Fact(alloc_retries, m[alloc_retries]),
        Fact(mem_headroom, m[mem_headroom]),
    )
