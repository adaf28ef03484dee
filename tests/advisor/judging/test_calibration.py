"""Ten hand-computed predictions, and the properties of rescaling."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshots import same, scenes

from advisor.judging.calibration import (
    Calibration,
    Record,
    TrialResult,
    rescaled,
    scale,
    untested,
)
from advisor.judging.verdict import Verdict


def a_record(observed: float, predicted: tuple[float, float, float] = (0.1, 0.2, 0.4)) -> Record:
    return Record("data-more-workers", predicted, observed)


# Off by -.2, -.1, -.05, 0, .05, .1, .15, .2, .3 and .4. As multiples of the sides, .1 below and .2 above, these are 2,
# 1, .5, 0, .25, .5, .75, 1, 1.5 and 2.
TEN = [a_record(0.2 + off) for off in (-0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)]


def test_scale_contains_eight_of_ten_results():
    assert scale(TEN) == pytest.approx(1.5)
    assert rescaled((0.1, 0.2, 0.4), 1.5) == pytest.approx((0.05, 0.2, 0.5))


def test_fewer_than_ten_trials_widen_interval_by_a_quarter():
    assert scale(TEN[:9]) == scale([]) == 1.25


def test_predictions_that_are_too_cautious_get_narrower():
    assert scale([a_record(0.22)] * 10) == pytest.approx(0.1)


def test_no_interval_is_narrower_than_trial_resolution():
    assert rescaled((0.1, 0.2, 0.4), 0) == pytest.approx((0.19, 0.2, 0.21))
    assert rescaled((0.2, 0.2, 0.2), 1.5) == pytest.approx((0.185, 0.2, 0.215))


def test_share_removed_never_exceeds_one():
    assert rescaled((0.5, 0.8, 0.95), 3) == pytest.approx((-0.1, 0.8, 1.0))


shares = st.floats(-1, 1)
predictions = st.tuples(shares, shares, shares).map(lambda values: tuple(sorted(values)))
records = st.lists(st.builds(Record, st.just("r"), predictions, shares), min_size=10, max_size=40)


@given(records)
def test_rescaled_intervals_contain_80_percent_of_results(some: list[Record]):
    factor = scale(some)
    wider = [Record(r.rule, rescaled(r.predicted, factor * (1 + 1e-9)), r.observed) for r in some]
    assert sum(record.inside for record in wider) >= 0.8 * len(wider)
    assert sum(record.needed < factor for record in some) < 0.8 * len(some), "a smaller factor would not do"


@given(predictions, st.floats(0, 100))
def test_rescaled_interval_stays_in_order_around_expected_value(predicted: tuple, factor: float):
    low, expected, high = rescaled(predicted, factor)
    assert low <= expected == predicted[1] <= high <= 1


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: a_record(math.nan),
        lambda: a_record(0.1, (0.3, 0.2, 0.1)),
        lambda: rescaled((0.1, 0.2, 0.3), -1),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"predict|rescale"):
        nonsense()


RULE = "data-more-workers"


def past(*observed, verdict=Verdict.CONFIRMED):
    """Return trials of a rule that was predicted to remove 10 to 40 %."""
    return Calibration(
        tuple(
            TrialResult(rule=RULE, verdict=verdict, predicted=(0.1, 0.2, 0.4), removed=(each - 0.01, each, each + 0.01))
            for each in observed
        )
    )


def test_untried_rule_is_widened_by_a_quarter():
    assert past(0.9).prediction("other", (0.1, 0.2, 0.4)) == pytest.approx((0.075, 0.2, 0.45))
    assert past(0.9).confidence("other", 0.6) == 0.6
    assert past(0.9).story("other") == ""


@pytest.mark.parametrize("observed", [(0.2, 0.3), (0.2, 0.9)])
def test_few_trials_widen_by_a_quarter_regardless_of_result(observed):
    assert past(*observed).prediction(RULE, (0.1, 0.2, 0.4)) == pytest.approx((0.075, 0.2, 0.45))


def test_uncertainty_grows_with_share_removed():
    """80 % go: 15 % of the other 20 %, times 0.8, are 2.4 points, which is more than the model's 1 and less than its
    10. With a quarter added: 3 and 12.5."""
    assert untested((0.79, 0.8, 0.81)) == pytest.approx((0.77, 0.8, 0.83))
    assert untested((0.7, 0.8, 0.81)) == pytest.approx((0.675, 0.8, 0.83))


def test_outcomes_excluded_by_model_stay_excluded():
    assert untested((0.0, 0.05, 0.25)) == pytest.approx((0.0, 0.05, 0.3))  # it cannot cost time
    assert untested((-0.04, -0.01, 0.0)) == pytest.approx((-0.0475, -0.01, 0.0))  # it cannot save time
    assert untested((-0.04, 0.0, 0.04)) == pytest.approx((-0.05, 0.0, 0.05))
    assert untested((0.0, 0.0, 0.0)) == (0.0, 0.0, 0.0)
    assert untested((0.9, 0.97, 0.98))[2] <= 1


@given(predictions)
def test_untested_interval_contains_model_interval(predicted: tuple):
    low, expected, high = untested(predicted)
    assert low <= predicted[0] + 1e-12
    assert expected == predicted[1]
    assert predicted[2] - 1e-12 <= high <= 1


def test_ten_trials_set_the_interval():
    ten = past(*(record.observed for record in TEN))

    assert ten.prediction(RULE, (0.1, 0.2, 0.4)) == pytest.approx((0.05, 0.2, 0.5))


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.FAILED])
def test_trials_without_result_do_not_count_against_model(verdict):
    assert past(0.9, 0.9, verdict=verdict).records(RULE) == []
    assert past(0.9, 0.9, verdict=verdict).confidence(RULE, 0.6) == 0.6


def test_confidence_is_the_mean_of_the_beta_distribution():
    """Beta(hits + 2, misses + 1) for a prior of two thirds: with two hits and one miss, the mean is 4/6."""
    both = Calibration((*past(0.2, 0.2).tried, *past(0.0, verdict=Verdict.REFUTED).tried))

    assert both.confidence(RULE, 2 / 3) == pytest.approx(4 / 6)
    assert both.confidence(RULE, 0.9) == pytest.approx((2.7 + 2) / 6)


def test_snapshot_of_stories():
    both = Calibration((*past(0.15, 0.35).tried, *past(-0.1, verdict=Verdict.HARMFUL).tried))

    again = Calibration((TrialResult(rule=RULE, verdict=Verdict.FAILED, predicted=None),), {RULE: 3})

    same("stories.txt", scenes({"three programs": both.story(RULE), "one program": again.story(RULE)}))
