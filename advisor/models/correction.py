"""Adjust an effect to trial measurements, at any position in the plan."""

import math

from advisor.models.effects import Triple
from advisor.models.state import Effect, Scenario, State, removed

# Share of the step. If the model predicts a smaller gain, trial results cannot be scaled by it.
NOTHING = 1e-3

ROUNDING = 1e-9

# Largest share of a step that a corrected effect may remove.
MOST = 0.99


def corrected(effect: Effect, start: State, found: Triple) -> Effect:
    """Return `effect`, changed so that it removes `found` (low, expected, high) of `start`.

    In another state, `found` is scaled by the model's gain there over its gain in `start`: if other changes already
    bring all that this one could, it brings nothing. If it saves more seconds there than in `start`, because other
    changes left a lower limit that it reduces, the remaining share that the model predicts is raised to the same power
    in both states, so that no share reaches 1. The share is also limited to `found`, or to `found` scaled by the
    model's gains in the same scenario if that is larger: a phase that other changes shortened has less to remove.
    """
    alone = removed(start, effect(start, Scenario.EXPECTED))

    def apply(state: State, scenario: Scenario) -> State:
        after = effect(state, scenario)
        here = removed(state, effect(state, Scenario.EXPECTED))
        saves_more = here * state.time > (1 + ROUNDING) * alone * start.time
        target = scenario.of(found)
        limit = _in_proportion(target, removed(start, effect(start, scenario)), removed(state, after))
        share = min(MOST, max(target, limit), (_raised if saves_more else _in_proportion)(target, alone, here))
        return after.times((1 - share) * state.time / after.time) if after.time > 0 else after

    return apply


def _in_proportion(found: float, alone: float, here: float) -> float:
    """Return `found`, scaled by the model's gain in another state (`here`) over its gain in the first one (`alone`)."""
    return found * here / alone if abs(alone) > NOTHING else found


def _raised(found: float, alone: float, here: float) -> float:
    """Return 1 - (1 - here)^p, with p such that (1 - alone)^p = 1 - found."""
    if not NOTHING < alone < 1 or max(here, found) >= 1:
        return _in_proportion(found, alone, here)
    return 1.0 - math.pow(1 - here, math.log1p(-found) / math.log1p(-alone))


def nothing(state: State, _scenario: Scenario) -> State:
    """Return the state unchanged: the effect of a change without a predicted gain."""
    return state
