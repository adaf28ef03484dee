"""What rules about the making of batches share: how much of the step can be gained there."""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.input import workers_are_behind
from advisor.metrics.step import data_wait_fraction
from advisor.models.state import Effect, Scenario, State, removed


def gain(m: Metrics, effect: Effect) -> float:
    """Share of the step that is expected to go with this change of how its batches are made.

    Waiting is in series with the rest of the step, unless workers that are behind set its pace, as the judge has it.
    """
    wait, behind = m[data_wait_fraction], m[workers_are_behind]
    step = State(phases={"other": 1.0 - wait}, load=0.0 if behind else wait, supply=1.0 if behind else 0.0)
    return removed(step, effect(step, Scenario.EXPECTED))
