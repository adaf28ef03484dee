"""Too few steps were recorded to say more than a first impression.

Step times vary; the mean of a handful of them may be off by more than any advice would bring. Until the interval of the
typical step's mean is narrow enough, everything else in the report is information only. Single stalls do not count
here: a long one in a hundred steps leaves the others as certain as they were.

Wrong when: the run is meant to be that short, or its steps differ by nature (sequences of all lengths): then compare
whole epochs, not steps.
"""

from __future__ import annotations

import math

from advisor.metrics.base import Metrics
from advisor.metrics.step import WARM_UP, steady_step_count, typical_step_uncertainty
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Severity, Source, Tier

# Of 30 steps the 95 % interval of the median reaches from the 10th to the 21st; of 20 it holds half of them.
MIN_STEPS = 30

# Half the width of the 95 % interval of the trimmed mean: advice that brings 5 % would drown in more.
MAX_UNCERTAINTY = 0.05


def when(m: Metrics) -> Evidence | None:
    """If there are fewer than 30 steady steps, or their trimmed mean is uncertain by more than 5 %,"""
    count = m[steady_step_count]
    if count < MIN_STEPS:
        return Evidence((Fact(steady_step_count, count, MIN_STEPS, "<"),))
    uncertainty = m[typical_step_uncertainty]
    if uncertainty <= MAX_UNCERTAINTY:
        return None
    return Evidence((Fact(typical_step_uncertainty, uncertainty, MAX_UNCERTAINTY, ">"),))


def then(m: Metrics, found: Evidence) -> Advice:
    """then record as many steps as bring the uncertainty to 5 %."""
    needed = _needed(m)
    return Advice(
        then=f"Record at least {needed} steps; this run has {m[steady_step_count]} steady ones.",
        changes=(Change(language="text", code=f"Let the program train for {needed} steps or more.\n"),),
        basis="The width of the interval falls with the square root of the number of steps.",
        memory=0,
        risk="None.",
    )


def _needed(m: Metrics) -> int:
    uncertainty = m.get(typical_step_uncertainty) or 0.0
    steady = m[steady_step_count] * (uncertainty / MAX_UNCERTAINTY) ** 2
    return WARM_UP + max(MIN_STEPS, math.ceil(steady))


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
