"""The values in Young's and Daly's papers, and hand-computed spot machines."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.checkpoint_interval import (
    break_even_discount,
    daly,
    inflation,
    spot_cost,
    young,
)


@pytest.mark.parametrize(
    ("between_failures", "interval", "inflated"), [(1440, 116.7, 1.096), (360, 56.7, 1.220), (15, 9.14, 5.01)]
)
def test_daly_matches_published_examples(between_failures: float, interval: float, inflated: float):
    tau = daly(5, between_failures)
    assert tau == pytest.approx(interval, rel=1e-3)
    assert inflation(tau, 5, between_failures, 10) == pytest.approx(inflated, rel=1e-3)


@pytest.mark.parametrize(("save", "hours", "minutes"), [(5, 2, 4.5), (20, 4, 12.6), (120, 24, 75.9)])
def test_young_interval_of_typical_clusters(save: float, hours: float, minutes: float):
    assert young(save, 3600 * hours) / 60 == pytest.approx(minutes, abs=0.05)


@pytest.mark.parametrize(
    ("save", "between_failures", "restart", "interval", "inflated", "discount", "cost", "break_even"),
    [(20, 7200, 300, 523, 1.124, 0.65, 0.394, 0.11), (60, 1800, 600, 426, 1.828, 0.3, 1.28, 0.453)],
    ids=["spot instances are cheaper", "spot instances are more expensive"],
)
def test_spot(save, between_failures, restart, interval, inflated, discount, cost, break_even):
    tau = daly(save, between_failures)
    expected = inflation(tau, save, between_failures, restart)
    assert tau == pytest.approx(interval, abs=0.5)
    assert expected == pytest.approx(inflated, abs=0.001)
    assert spot_cost(discount, expected) == pytest.approx(cost, abs=0.001)
    assert break_even_discount(expected) == pytest.approx(break_even, abs=0.001)
    assert spot_cost(break_even_discount(expected), expected) == pytest.approx(1)


@pytest.mark.parametrize(("interval", "inflated"), [(60, 1.398), (300, 1.137), (1800, 1.199), (3600, 1.362)])
def test_too_often_and_too_rarely_both_cost(interval: float, inflated: float):
    assert inflation(interval, 20, 7200, 300) == pytest.approx(inflated, abs=0.0006)


def test_interval_if_save_takes_longer_than_time_between_failures():
    assert daly(30, 15) == daly(40, 15) == 15


def test_hopeless_machines():
    assert inflation(1e6, 1, 1, 1) == math.inf
    assert break_even_discount(math.inf) == 1


@given(
    st.floats(0.1, 100), st.floats(1000, 1e6), st.floats(0, 1000), st.floats(0.3, 3).filter(lambda f: abs(f - 1) > 0.2)
)
def test_dalys_interval_is_near_the_best(save: float, between_failures: float, restart: float, factor: float):
    tau = daly(save, between_failures)
    best = inflation(tau, save, between_failures, restart)
    assert 1 < best <= inflation(tau * factor, save, between_failures, restart) * (1 + 1e-6)


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: young(0, 10),
        lambda: daly(1, -1),
        lambda: inflation(0, 1, 10, 1),
        lambda: inflation(1, 1, 10, -1),
        lambda: spot_cost(1.2, 1.1),
        lambda: spot_cost(0.5, 0.9),
        lambda: break_even_discount(0.5),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"\d"):
        nonsense()
