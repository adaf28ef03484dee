"""Estimate how much of the step a change to data loading can save."""

from advisor.metrics.base import Metrics
from advisor.metrics.input import workers_are_behind
from advisor.metrics.step import data_wait_fraction
from advisor.models.state import Effect, Scenario, State, removed


def gain(m: Metrics, effect: Effect) -> float:
    """Return the share of the step (0 to 1) that a change to batch preparation is expected to save.

    Waiting for data is modelled as serial with the rest of the step, unless the workers are behind and set the
    step's pace. The judge uses the same model.
    """
    wait, behind = m[data_wait_fraction], m[workers_are_behind]
    step = State(phases={"other": 1.0 - wait}, load=0.0 if behind else wait, supply=1.0 if behind else 0.0)
    return removed(step, effect(step, Scenario.EXPECTED))
