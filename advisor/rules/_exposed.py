"""What rules about copies, synchronising and collectives share: such time is a phase of its own, or part of others."""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.communication import exposed_comm_seconds, straggler_wait
from advisor.models.effects import Triple, shorter
from advisor.models.state import Effect, Scenario, State


def exposed(m: Metrics) -> float:
    """Seconds of a step in collectives that nothing hides; without the waiting for slower ranks where that is known,
    for sharding changes nothing about it.
    """
    return max(0.0, m[exposed_comm_seconds] - (m.get(straggler_wait) or 0.0))


def remove_exposed(phase: str, seconds: float, shares: Triple, within: tuple[str, ...] = ("other",)) -> Effect:
    """Of so many idle seconds of a step `shares` are gone.

    Where they are no phase of their own they lie in those of `within`; the kernels there stay as they are.
    """

    def effect(state: State, scenario: Scenario) -> State:
        parts = (phase,) if phase in state.phases else within
        return shorter(state, seconds * scenario.of(shares), parts, kernels=False)

    return effect
