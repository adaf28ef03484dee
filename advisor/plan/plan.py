"""Collect everything that one call plans."""

from dataclasses import dataclass

from advisor.plan.batch import BatchPlan
from advisor.plan.interval import IntervalPlan
from advisor.plan.memory import MemoryPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parts of a plan; None was not requested."""

    memory: MemoryPlan | None = None
    batch: BatchPlan | None = None
    interval: IntervalPlan | None = None
