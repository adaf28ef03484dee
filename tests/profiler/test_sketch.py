"""Quantiles are right to 1 % whatever the distribution, in bounded memory."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.sketch import EDGE, GROWTH, Quantiles

VALUES = st.floats(min_value=1e-9, max_value=1e6)


def filled(values):
    quantiles = Quantiles()
    for value in values:
        quantiles.add(value)
    return quantiles


def exact(values, q):
    return sorted(values)[max(0, math.ceil(q * len(values) - 1e-9) - 1)]


@given(st.lists(VALUES | st.just(0.0), min_size=1), st.floats(0, 1))
def test_quantiles_are_right_to_one_percent(values, q):
    assert filled(values).quantile(q) == pytest.approx(exact(values, q), rel=0.01)


@given(st.lists(VALUES | st.just(0.0)), st.lists(VALUES | st.just(0.0)))
def test_merged_sketches_are_the_sketch_of_all_values(some, others):
    merged = Quantiles.from_sketch(*(filled(values).to_sketch(1, "duration") for values in (some, others)))
    together = filled(some + others)
    assert (merged.zeros, merged.bins) == (together.zeros, together.bins)
    assert merged.count == len(some) + len(others)


@given(st.lists(VALUES | st.sampled_from([0.0, -1.0, 1e-300, 1e300, math.inf, math.nan])))
def test_many_values_at_once_are_counted_as_one_by_one(values):
    many = Quantiles()
    many.extend(values)
    assert (many.zeros, many.bins) == (filled(values).zeros, filled(values).bins)


@given(st.lists(VALUES))
def test_a_stored_sketch_goes_on_as_if_never_stored(values):
    sketch = filled(values).to_sketch(7, "duration")
    assert (sketch.pid, sketch.quantity) == (7, "duration")
    assert Quantiles.from_sketch(sketch).to_sketch(7, "duration") == sketch


@given(VALUES)
def test_bins_are_those_the_schema_promises(value):
    (k,) = filled([value]).bins
    assert GROWTH ** (k - 1) * (1 - 1e-12) <= value <= GROWTH**k * (1 + 1e-12)


def test_memory_is_bounded_whatever_comes():
    quantiles = Quantiles()
    for exponent in range(-308, 309):
        quantiles.extend([10.0**exponent] * 2)
    quantiles.add(math.inf)
    quantiles.add(5e-324)
    assert quantiles.count == 2 * 617 + 2
    assert set(quantiles.bins) <= set(range(-EDGE, EDGE + 1))


def test_a_count_weighs():
    quantiles = filled([*[1.0] * 9, 100.0])
    assert quantiles.quantile(0.9) == pytest.approx(1.0, rel=0.01)
    assert quantiles.quantile(0.91) == pytest.approx(100.0, rel=0.01)


def test_without_values_there_is_no_quantile():
    assert Quantiles().quantile(0.5) is None


def test_nan_is_no_value_and_below_zero_is_zero():
    quantiles = filled([math.nan, -1e-9, 0.0])
    assert (quantiles.count, quantiles.quantile(1.0)) == (2, 0.0)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_share_outside_zero_to_one_is_refused(q):
    with pytest.raises(ValueError, match="share"):
        filled([1.0]).quantile(q)
