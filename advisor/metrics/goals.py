"""What the user said the run is for."""

from __future__ import annotations

from dataclasses import fields

from advisor.metrics.base import Metrics, metric
from advisor.metrics.step import step_time_mean


@metric(None, "goals that were declared")
def declared_goals(m: Metrics) -> tuple[str, ...]:
    """Names of the goals that were declared for the training; without a step there is none to have a goal for."""
    m[step_time_mean]
    return tuple(each.name for each in fields(m.goals) if getattr(m.goals, each.name) != each.default)
