"""Ten predictions by hand, and the laws of rescaling."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.calibration import Record, coverage, median_error, median_relative_error, rescaled, scale


def a_record(observed: float, predicted: tuple[float, float, float] = (0.1, 0.2, 0.4)) -> Record:
    return Record("data-more-workers", predicted, observed)


# Off by -.2, -.1, -.05, 0, .05, .1, .15, .2, .3 and .4: of the sides .1 below and .2 above that is
# 2, 1, .5, 0, .25, .5, .75, 1, 1.5 and 2 times.
TEN = [a_record(0.2 + off) for off in (-0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)]


def test_coverage_and_errors():
    assert coverage(TEN) == pytest.approx(0.7)
    assert median_error(TEN) == pytest.approx(0.125)
    assert median_relative_error([a_record(0.1), a_record(0.2), a_record(0.4)]) == pytest.approx(0.5)


def test_errors_of_what_brought_nothing():
    assert a_record(0.0).relative_error == math.inf
    assert a_record(0.0, (0, 0, 0.1)).relative_error == 0


def test_the_eighth_of_ten_sets_the_scale():
    assert scale(TEN) == pytest.approx(1.5)
    assert rescaled((0.1, 0.2, 0.4), 1.5) == pytest.approx((0.05, 0.2, 0.5))


def test_fewer_than_ten_widen_by_a_quarter():
    assert scale(TEN[:9]) == scale([]) == 1.25


def test_predictions_that_are_too_cautious_get_narrower():
    assert scale([a_record(0.22)] * 10) == pytest.approx(0.1)


def test_no_interval_is_narrower_than_what_a_trial_can_tell():
    assert rescaled((0.1, 0.2, 0.4), 0) == pytest.approx((0.19, 0.2, 0.21))
    assert rescaled((0.2, 0.2, 0.2), 1.5) == pytest.approx((0.185, 0.2, 0.215))


def test_no_step_loses_more_than_all_of_its_time():
    assert rescaled((0.5, 0.8, 0.95), 3) == pytest.approx((-0.1, 0.8, 1.0))


shares = st.floats(-1, 1)
predictions = st.tuples(shares, shares, shares).map(lambda values: tuple(sorted(values)))
records = st.lists(st.builds(Record, st.just("r"), predictions, shares), min_size=10, max_size=40)


@given(records)
def test_rescaled_intervals_would_have_held_four_of_five(some: list[Record]):
    factor = scale(some)
    wider = [Record(r.rule, rescaled(r.predicted, factor * (1 + 1e-9)), r.observed) for r in some]
    assert coverage(wider) >= 0.8
    assert sum(record.needed < factor for record in some) < 0.8 * len(some), "a smaller factor would not do"


@given(predictions, st.floats(0, 100))
def test_an_interval_stays_in_order_around_what_is_expected(predicted: tuple, factor: float):
    low, expected, high = rescaled(predicted, factor)
    assert low <= expected == predicted[1] <= high <= 1


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: a_record(math.nan),
        lambda: a_record(0.1, (0.3, 0.2, 0.1)),
        lambda: coverage([]),
        lambda: median_error([]),
        lambda: rescaled((0.1, 0.2, 0.3), -1),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"predict|rescale"):
        nonsense()
