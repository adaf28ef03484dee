"""What rules about copies and synchronising share: such time is a phase of its own, or part of others."""

from __future__ import annotations

from advisor.models.effects import Triple, shorter
from advisor.models.state import Effect, Scenario, State


def remove_exposed(phase: str, seconds: float, shares: Triple, within: tuple[str, ...] = ("other",)) -> Effect:
    """Of so many idle seconds of a step `shares` are gone.

    Where they are no phase of their own they lie in those of `within`; the kernels there stay as they are.
    """

    def effect(state: State, scenario: Scenario) -> State:
        parts = (phase,) if phase in state.phases else within
        return shorter(state, seconds * scenario.of(shares), parts, kernels=False)

    return effect
