"""Tables of order statistics and sample sizes, and bootstraps of simulated step times."""

import math
from random import Random
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.judging.verdict import Verdict, verdict_of
from advisor.stats.significance import (
    Interval,
    block_length,
    central,
    mean_interval,
    resampled,
    speedup,
    steps_per_arm,
    trimmed_mean,
    widened,
)


def simulated(number: int, random: Random, mean: float = 0.1, spikes: float = 0.02) -> list[float]:
    """Return autocorrelated step times (AR 0.4, cv 5 %), a few of them three times as long."""
    times, deviation = [], 0.0
    for _ in range(number):
        deviation = 0.4 * deviation + random.gauss(0, 0.05 * math.sqrt(1 - 0.4**2))
        times.append(mean * (1 + deviation) * (3 if random.random() < spikes else 1))
    return times


@pytest.mark.parametrize(
    ("cv", "effect", "steps"), [(0.05, 0.03, 44), (0.02, 0.03, 7), (0.05, 0.05, 16), (0.1, 0.05, 63), (0.2, 0.1, 63)]
)
def test_steps_for_each_arm(cv: float, effect: float, steps: int):
    assert steps_per_arm(cv, effect) == steps


def test_one_step_suffices_without_variation():
    assert steps_per_arm(0, 0.05) == 1


def test_a_trimmed_mean_leaves_out_a_tenth_at_either_end():
    assert trimmed_mean([0, *[1] * 8, 1000]) == 1
    assert trimmed_mean([0, 1, 2]) == 1, "of nine or fewer there is none to leave out"


@pytest.mark.parametrize(("number", "in_flight", "block"), [(60, 0, 5), (125, 0, 5), (1000, 0, 10), (60, 16, 16)])
def test_block_length_covers_correlated_steps(number: int, in_flight: int, block: int):
    assert block_length(number, in_flight) == block


def test_resampling_draws_blocks_of_neighbors():
    drawn = resampled(range(23), 5, np.random.default_rng(1))
    assert len(drawn) == 23
    for start in range(0, 20, 5):
        assert [value - drawn[start] for value in drawn[start : start + 5]] == [0, 1, 2, 3, 4]


def test_resampling_reaches_first_and_last_block():
    random = np.random.default_rng(0)
    drawn = {value for _ in range(200) for value in resampled(range(10), 5, random)}
    assert drawn == set(range(10))


def test_mean_interval_is_computed_from_block_means():
    """Blocks of two have a mean of 1, 2 or 3, and each draw has two of them; there is only one block of all four."""
    assert mean_interval([1, 1, 3, 3], 2, level=0.9) == (1, 3)
    assert mean_interval([1, 1, 3, 3], 4) == (2, 2)


def test_mean_interval_uses_weights():
    assert mean_interval([1, 3], 2, [3, 1]) == (1.5, 1.5)


@pytest.mark.parametrize("factor", [0.5, 0.95, 1.05])
def test_a_speedup_is_found(factor: float):
    random = Random(3)
    found = speedup(simulated(60, random), simulated(60, random, mean=0.1 * factor), draws=500)
    assert found.low < 1 / factor < found.high
    assert found.estimate == pytest.approx(1 / factor, rel=0.03)
    assert found.high / found.low < 1.1


def test_the_same_steps_give_the_same_interval():
    random = Random(5)
    before, after = simulated(60, random), simulated(60, random)
    assert speedup(before, after, draws=200) == speedup(before, after, draws=200)


def test_stalls_count_only_with_untrimmed_mean():
    steady, stalling = [0.1] * 60, [0.1] * 60
    stalling[7] = stalling[33] = 2.0
    assert speedup(stalling, steady, draws=100).estimate == pytest.approx(1)
    assert speedup(stalling, steady, draws=100, mean=fmean).estimate == pytest.approx((5.8 + 4) / 6)


def test_a_program_against_itself_is_rarely_faster():
    """Nominally 5 %. With single steps instead of blocks, 19 % of these were faster; see `widened`."""
    random, trials = Random(11), 200
    found = [speedup(simulated(60, random), simulated(60, random), draws=150) for _ in range(trials)]
    assert excluding_one(found) <= 0.15
    noise = pstdev([math.log(one.estimate) for one in found], mu=0.0)
    assert excluding_one([widened(one, noise) for one in found]) <= 0.06


def excluding_one(intervals: list[Interval]) -> float:
    return sum(not one.low <= 1 <= one.high for one in intervals) / len(intervals)


@pytest.mark.parametrize(
    ("before", "message"),
    [([0.1] * 9, "two blocks"), ([0.1] * 19 + [0.0], "positive"), ([0.1] * 19 + [math.nan], "positive")],
)
def test_unusable_times_are_refused(before: list[float], message: str):
    with pytest.raises(ValueError, match=message):
        speedup(before, [0.1] * 20)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=200))
def test_central_interval_contains_95_percent_of_values(values: list[float]):
    low, high = central(values)
    assert low <= high
    assert sum(low <= value <= high for value in values) >= 0.95 * len(values)


def test_interval_is_widened_to_noise_between_identical_runs():
    narrow = Interval(1.04, 1.05, 1.06)
    assert widened(narrow, 0.0) == narrow
    wide = widened(narrow, 0.05)
    assert wide.estimate == 1.05
    assert (wide.low, wide.high) == pytest.approx((1.05 * math.exp(-0.098), 1.05 * math.exp(0.098)), rel=1e-3)
    assert widened(Interval(0.5, 1.05, 2), 0.05) == Interval(0.5, 1.05, 2)


@pytest.mark.parametrize(
    ("low", "high", "p90", "wanted"),
    [
        (1.25, 1.45, 1.0, "confirmed"),
        (1.05, 1.25, 1.0, "confirmed"),
        (1.55, 1.65, 1.0, "better"),
        (1.05, 1.15, 1.0, "partial"),
        (0.95, 1.005, 1.0, "refuted"),
        (1.001, 1.009, 1.0, "refuted"),
        (0.95, 1.3, 1.0, "inconclusive"),
        (1.0, 1.3, 1.0, "inconclusive"),
        (1.25, 1.45, 1.06, "harmful"),
        (1.25, 1.45, 1.05, "confirmed"),
    ],
)
def test_verdict_on_predicted_speedup_of_1_2_to_1_5(low: float, high: float, p90: float, wanted: str):
    assert verdict_of(Interval(low, (low + high) / 2, high), (1.2, 1.5), p90) is Verdict(wanted)


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: steps_per_arm(-1, 0.1),
        lambda: steps_per_arm(0.1, 0),
        lambda: trimmed_mean([]),
        lambda: widened(Interval(1, 1, 1), -1),
        lambda: verdict_of(Interval(1, 1, 1), (2, 1), 1),
        lambda: verdict_of(Interval(1, 1, 1), (1, 2), 0),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"no|widen|at least one|invalid"):
        nonsense()
