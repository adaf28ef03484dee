"""Relate what a rule measured to the phases of a step.

Exposed time (copies, synchronization, collectives) is either a separate phase or a part of other phases.
"""

from advisor.metrics import Metrics, communication, step
from advisor.models.effects import COMPUTE, Triple, shorter
from advisor.models.state import Effect, Scenario, State

PASSES = ("forward", "backward", "optimizer", "other")
"""Phases that may contain idle time that is not a separate phase."""


def of_computing(m: Metrics, part: float) -> float:
    """Convert a share of the step into a share of forward and backward time, at most 1."""
    phases = m[step.modeled_phases]
    computing_seconds = sum(phases.get(phase, 0.0) for phase in COMPUTE)
    return min(1.0, part * sum(phases.values()) / computing_seconds) if computing_seconds > 0 else 0.0


def exposed(m: Metrics) -> float:
    """Return the seconds per step of exposed communication.

    Waiting for slower ranks is excluded where it was measured, because sharding does not change it.
    """
    return max(0.0, m[communication.exposed_comm_seconds] - (m.get(communication.straggler_wait) or 0.0))


def remove_exposed(phase: str, seconds: float, shares: Triple, within: tuple[str, ...] = ("other",)) -> Effect:
    """Return the effect of saving `shares` of the given exposed seconds per step.

    The seconds come out of `phase` if the step has that phase, otherwise out of the phases in `within`. Kernel
    time in those phases stays the same.
    """

    def effect(state: State, scenario: Scenario) -> State:
        parts = (phase,) if phase in state.phases else within
        return shorter(state, seconds * scenario.of(shares), parts, kernels=False)

    return effect
