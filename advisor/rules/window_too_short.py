"""Too few steps were recorded to say more than a first impression.

Step times vary; the mean of a handful of them may be off by more than any advice would bring. Until the interval of the
typical step's mean is narrow enough, everything else in the report is information only. Single stalls do not count
here: a long one in a hundred steps leaves the others as certain as they were.

Wrong when: the run is meant to be that short, or its steps differ by nature (sequences of all lengths): then compare
whole epochs, not steps.
"""

from __future__ import annotations

import math

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.step import MIN_STEPS, WARM_UP, steady_step_count, typical_step_uncertainty
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Severity, Source, Tier
from advisor.units import share

MAX_UNCERTAINTY = Threshold(
    0.05, "Half the width of the 95 % interval of the trimmed mean: advice that brings 5 % would drown in more."
)


def when(m: Metrics) -> Evidence | None:
    """If there are fewer than 30 steady steps, or their trimmed mean is uncertain by more than 5 %,"""
    count = m[steady_step_count]
    if count < m[MIN_STEPS]:
        return Evidence((Fact(steady_step_count, count, m[MIN_STEPS], "<"),))
    uncertainty = m[typical_step_uncertainty]
    if uncertainty <= m[MAX_UNCERTAINTY]:
        return None
    return Evidence((Fact(typical_step_uncertainty, uncertainty, m[MAX_UNCERTAINTY], ">"),))


def then(m: Metrics, found: Evidence) -> Advice:
    """then record as many steps as bring the uncertainty to 5 %."""
    needed, steady = _needed(m), m[steady_step_count]
    uncertainty = m.get(typical_step_uncertainty)
    if steady < m[MIN_STEPS] or uncertainty is None:
        said = f"Record at least {needed} steps; this run has {steady} steady one{'s' * (steady != 1)}."
    else:
        said = (
            f"The {steady} steady steps vary so much that their typical time is uncertain by {share(uncertainty)}; "
            f"it takes about {needed} steps to bring that to {share(m[MAX_UNCERTAINTY])}."
        )
    return Advice(
        then=said,
        changes=(Change(language="text", code=f"Let the program train for {needed} steps or more.\n"),),
        basis="The width of the interval falls with the square root of the number of steps.",
        memory=0,
        risk="None.",
    )


def _needed(m: Metrics) -> int:
    uncertainty = m.get(typical_step_uncertainty) or 0.0
    steady = m[steady_step_count] * (uncertainty / m[MAX_UNCERTAINTY]) ** 2
    return _rounded_up(WARM_UP + math.ceil(max(m[MIN_STEPS], steady)))


def _rounded_up(number: int) -> int:
    """To two digits: the estimate is no better than that."""
    unit: int = 10 ** max(0, len(str(number)) - 2)
    return math.ceil(number / unit) * unit


RULE = Rule(
    title="Record more steps",
    tier=Tier.VALIDITY,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=1,
    sources=(Source("Kuensch: The Jackknife and the Bootstrap for General Stationary Observations, 1989"),),
    cap=Severity.INFO,
)
