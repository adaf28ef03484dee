"""Decide whether a quantity changed between two runs by more than chance and enough to matter."""

import math
from enum import Enum

from advisor.stats.significance import TWO_SIDED, Interval

# Two runs of the same program on a shared machine may differ by up to a twentieth of a step (assumption).
RELEVANT = 0.05


class ChangeVerdict(Enum):
    """Comparison of a quantity of the second run with the same quantity of the first."""

    SAME = "same"
    """Any difference is smaller than what matters."""
    BETTER = "better"
    """Less, by more than chance and by enough to matter."""
    WORSE = "worse"
    """More, by more than chance and by enough to matter."""
    UNCLEAR = "unclear"
    """Too noisy to decide."""
    TOO_FEW = "too few steps"
    NOT_MEASURED = "not measured"
    """Not measured in one or both of the runs."""

    @property
    def is_decided(self) -> bool:
        """Return whether the data is sufficient for a verdict."""
        return self in (ChangeVerdict.SAME, ChangeVerdict.BETTER, ChangeVerdict.WORSE)


def unbounded(value: float) -> Interval:
    """Return the interval of a value with unknown uncertainty."""
    return Interval(-math.inf, value, math.inf)


def for_few(interval: Interval, blocks: float) -> Interval:
    """Return the interval, widened by what resampling few blocks misses.

    The spread of k blocks is sqrt(k / (k - 1)) times that of their resamples, and is estimated with k - 1 degrees of
    freedom (Student's t over the normal quantile: Abramowitz and Stegun 26.7.5). In simulated pairs of runs of one
    program (each step correlated with the one before by 0.4), 11 % differed significantly without this correction at
    140 steps and 15 % at 60; with it, 9 % at both, and 5 % at 1,000.
    """
    freedom = max(1.0, blocks - 1)
    student = 1 + (TWO_SIDED**2 + 1) / (4 * freedom) + (5 * TWO_SIDED**4 + 16 * TWO_SIDED**2 + 3) / (96 * freedom**2)
    factor = student * math.sqrt((freedom + 1) / freedom)
    below, above = interval.estimate - interval.low, interval.high - interval.estimate
    return Interval(interval.estimate - factor * below, interval.estimate, interval.estimate + factor * above)


def difference(before: Interval, after: Interval, whole: float) -> Interval:
    """Return after - before as a share of `whole`, from their intervals and at the same confidence level.

    For independent estimates, the distances to the bounds add in quadrature (Newcombe, "Interval estimation for the
    difference between independent proportions", 1998; Zou and Donner, "Construction of confidence limits about effect
    measures", 2008).
    """
    estimate = after.estimate - before.estimate
    below = math.hypot(after.estimate - after.low, before.high - before.estimate)
    above = math.hypot(after.high - after.estimate, before.estimate - before.low)
    return Interval((estimate - below) / whole, estimate / whole, (estimate + above) / whole)


def ratio(before: Interval, after: Interval) -> Interval:
    """Return after / before - 1 from their intervals and at the same confidence level.

    It is never below -1. On the log scale, distances to the bounds add in quadrature as in `difference`. The result is
    unbounded if the first interval reaches zero or either interval is unbounded. Both estimates must be positive.
    """
    change = after.estimate / before.estimate
    below = math.hypot(_below(after), _above(before))
    above = math.hypot(_above(after), _below(before))
    if math.isinf(above) or math.isinf(after.low):
        return unbounded(change - 1)
    return Interval(change * math.exp(-below) - 1, change - 1, change * math.exp(above) - 1)


def _below(interval: Interval) -> float:
    return math.log(interval.estimate / interval.low) if interval.low > 0 else math.inf


def _above(interval: Interval) -> float:
    return math.log(interval.high / interval.estimate)


def verdict(change: Interval, relevant: float) -> ChangeVerdict:
    """Return the verdict on a change relative to its baseline; less is better.

    "Better" and "worse" need an interval that excludes zero, and an estimate of at least the relevant difference.
    "Same" needs an interval that excludes any relevant difference; everything else is unclear.
    """
    if change.low > 0 and change.estimate >= relevant:
        return ChangeVerdict.WORSE
    if change.high < 0 and change.estimate <= -relevant:
        return ChangeVerdict.BETTER
    return ChangeVerdict.SAME if -relevant < change.low and change.high < relevant else ChangeVerdict.UNCLEAR
