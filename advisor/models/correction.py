"""Adjust an effect to what trials have measured, wherever it comes in the plan."""

import math

from advisor.models.effects import Triple
from advisor.models.state import Effect, Scenario, State, removed

# Of a step's time: what removes less by its model has nothing that trials could be put in proportion to.
NOTHING = 1e-3

ROUNDING = 1e-9

# A step keeps some of its time, however much was found to go.
MOST = 0.99


def corrected(effect: Effect, start: State, found: Triple) -> Effect:
    """Return `effect`, changed so that it removes `found` (low, expected, high).

    Of another state it removes as much of that as the model leaves of its gain there: where other changes have brought
    all that this one could, it still brings nothing. Where it brings more seconds there than alone, because others
    have left a floor that it lowers, what remains of the step is raised to one power in both states: no share reaches
    all of it. Nor is a share larger than in proportion to the model's gain in the same scenario: of a phase that others
    have shortened, no more can go than is left.
    """
    alone = removed(start, effect(start, Scenario.EXPECTED))

    def apply(state: State, scenario: Scenario) -> State:
        after = effect(state, scenario)
        here = removed(state, effect(state, Scenario.EXPECTED))
        more = here * state.time > (1 + ROUNDING) * alone * start.time
        by = scenario.of(found)
        most = _in_proportion(by, removed(start, effect(start, scenario)), removed(state, after))
        share = min(MOST, max(by, most), (_raised if more else _in_proportion)(by, alone, here))
        return after.times((1 - share) * state.time / after.time) if after.time > 0 else after

    return apply


def _in_proportion(found: float, alone: float, here: float) -> float:
    """Return the share of another state, of which the model removes `here`, where it removes `alone` of the first."""
    return found * here / alone if abs(alone) > NOTHING else found


def _raised(found: float, alone: float, here: float) -> float:
    """Return the same, as (1 - here) to the power that makes 1 - found of 1 - alone."""
    if not NOTHING < alone < 1 or max(here, found) >= 1:
        return _in_proportion(found, alone, here)
    return 1.0 - math.pow(1 - here, math.log1p(-found) / math.log1p(-alone))


def nothing(state: State, _scenario: Scenario) -> State:
    """Return the state unchanged: the effect of a change without a predicted gain."""
    return state
