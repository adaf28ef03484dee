"""Estimate how much of the step a change to data loading can save."""

from advisor.metrics.base import Metrics
from advisor.metrics.input import wait_beside_batches, workers_are_behind
from advisor.metrics.step import data_wait_fraction, step_time_mean
from advisor.models.state import Effect, Scenario, State, removed


def gain(m: Metrics, effect: Effect) -> float:
    """Return the share of the step (0 to 1) that a change to batch preparation is expected to save.

    Waiting for data is modelled as serial with the rest of the step, unless the workers are behind and set the
    step's pace. The judge uses the same model.
    """
    behind = m[workers_are_behind]
    beside = m.get(wait_beside_batches)
    wait = m[data_wait_fraction] - (beside / m[step_time_mean] if beside else 0.0)
    step = State(phases={"other": 1.0 - wait}, load=0.0 if behind else wait, supply=1.0 if behind else 0.0)
    return removed(step, effect(step, Scenario.EXPECTED))
