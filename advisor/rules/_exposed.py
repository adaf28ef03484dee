"""Helpers for rules about exposed copies, synchronization and collectives.

Exposed time is either a phase of its own or a part of other phases.
"""

from advisor.metrics import Metrics, communication
from advisor.models.effects import Triple, shorter
from advisor.models.state import Effect, Scenario, State

PASSES = ("forward", "backward", "optimizer", "other")
"""Phases in any of which idle time may lie that is no phase of its own."""


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
