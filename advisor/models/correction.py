"""An effect held to what trials have shown of it, wherever it stands in the plan."""

from __future__ import annotations

from advisor.models.effects import Triple
from advisor.models.state import Effect, Scenario, State, removed

# Of a step's time: what removes less by its model has nothing that trials could be put in proportion to.
NOTHING = 1e-3

# A step keeps some of its time, however much was found to go.
MOST = 0.99


def corrected(effect: Effect, start: State, found: Triple) -> Effect:
    """`effect`, but of `start` it removes `found` (low, expected, high).

    Of another state it removes as much of that as the model leaves of its gain there: where other changes have brought
    all that this one could, it still brings nothing.
    """
    alone = removed(start, effect(start, Scenario.EXPECTED))

    def apply(state: State, scenario: Scenario) -> State:
        after = effect(state, scenario)
        here = removed(state, effect(state, Scenario.EXPECTED))
        left = here / alone if abs(alone) > NOTHING else 1.0
        share = min(MOST, scenario.of(found) * left)
        return after.times((1 - share) * state.time / after.time) if after.time > 0 else after

    return apply


def nothing(state: State, _scenario: Scenario) -> State:
    """The effect of a change for which no gain is predicted."""
    return state
