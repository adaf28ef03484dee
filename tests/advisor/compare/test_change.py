"""Differences that are significant and relevant, and those that are not."""

import math
import random
from statistics import NormalDist, fmean, stdev

import pytest

from advisor.compare.change import ChangeVerdict, difference, for_few, ratio, unbounded, verdict
from advisor.stats.significance import Interval


def test_bounds_of_difference_add_in_quadrature():
    made = difference(Interval(7.0, 10.0, 14.0), Interval(17.0, 20.0, 23.0), 1.0)

    assert (made.low, made.estimate, made.high) == pytest.approx((10 - 5, 10, 10 + math.hypot(3, 3)))


def test_ratio_of_wide_intervals_stays_above_minus_one():
    made = ratio(Interval(0.2, 1.0, 2.0), Interval(-0.3, 0.1, 0.5))

    assert -1 <= made.low < made.estimate == pytest.approx(-0.9)
    assert made.estimate < made.high


def test_ratio_of_unbounded_interval_is_unbounded():
    made = ratio(unbounded(1.0), Interval(1.9, 2.0, 2.1))

    assert (made.low, made.estimate, made.high) == (-math.inf, 1.0, math.inf)


def test_95_percent_of_intervals_contain_difference():
    chance, level = random.Random(0), NormalDist().inv_cdf(0.975)

    def estimated(mean):
        values = [chance.gauss(mean, 1.0) for _ in range(200)]
        half = level * stdev(values) / math.sqrt(200)
        return Interval(fmean(values) - half, fmean(values), fmean(values) + half)

    held = [
        made.low <= 0.3 <= made.high for made in (difference(estimated(5.0), estimated(5.3), 1.0) for _ in range(400))
    ]

    assert 0.92 < fmean(held) < 0.98


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((0.01, 0.05, 0.09), ChangeVerdict.WORSE),
        ((0.01, 0.049, 0.088), ChangeVerdict.UNCLEAR),  # surely slower, but perhaps by too little
        ((-0.01, 0.20, 0.41), ChangeVerdict.UNCLEAR),  # much slower, or not at all
        ((-0.09, -0.05, -0.01), ChangeVerdict.BETTER),
        ((-0.41, -0.20, 0.01), ChangeVerdict.UNCLEAR),
        ((0.01, 0.02, 0.03), ChangeVerdict.SAME),  # more than chance, but too little to matter
        ((-0.049, 0.0, 0.049), ChangeVerdict.SAME),
        ((-0.051, 0.0, 0.049), ChangeVerdict.UNCLEAR),
    ],
)
def test_verdict_requires_significance_and_relevant_difference(change, expected):
    assert verdict(Interval(*change), 0.05) is expected


def test_verdict_is_unclear_without_interval():
    assert verdict(difference(unbounded(1.0), Interval(2.9, 3.0, 3.1), 1.0), 0.05) is ChangeVerdict.UNCLEAR


def test_few_blocks_widen_an_interval_by_students_t():
    """With five degrees of freedom, t is 2.571 where the normal quantile is 1.960; six blocks widen by sqrt(6 / 5)."""
    made = for_few(Interval(8.0, 10.0, 11.0), 6)

    factor = 2.571 / 1.960 * math.sqrt(6 / 5)
    assert (made.low, made.high) == pytest.approx((10 - 2 * factor, 10 + factor), rel=0.01)
    assert for_few(Interval(8.0, 10.0, 11.0), 1e6).high == pytest.approx(11.0)
