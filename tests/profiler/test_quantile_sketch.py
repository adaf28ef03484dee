"""Quantiles are accurate to 1 % for any distribution, in bounded memory."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.quantile_sketch import EDGE, GROWTH, Quantiles

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
def test_merged_sketches_equal_sketch_of_all_values(some, others):
    merged = Quantiles.from_sketch(*(filled(values).to_sketch(1, "duration") for values in (some, others)))
    together = filled(some + others)
    assert (merged.zeros, merged.bins) == (together.zeros, together.bins)
    assert merged.count == len(some) + len(others)


@given(st.lists(VALUES | st.sampled_from([0.0, -1.0, 1e-300, 1e300, math.inf, math.nan])))
def test_extend_counts_like_repeated_add(values):
    many = Quantiles()
    many.extend(values)
    assert (many.zeros, many.bins) == (filled(values).zeros, filled(values).bins)


@given(st.lists(VALUES))
def test_stored_sketch_round_trips(values):
    sketch = filled(values).to_sketch(7, "duration")
    assert (sketch.pid, sketch.quantity) == (7, "duration")
    assert Quantiles.from_sketch(sketch).to_sketch(7, "duration") == sketch


@given(VALUES)
def test_bins_match_schema_definition(value):
    (k,) = filled([value]).bins
    assert GROWTH ** (k - 1) * (1 - 1e-12) <= value <= GROWTH**k * (1 + 1e-12)


def test_memory_is_bounded_for_extreme_values():
    quantiles = Quantiles()
    for exponent in range(-308, 309):
        quantiles.extend([10.0**exponent] * 2)
    quantiles.add(math.inf)
    quantiles.add(5e-324)
    assert quantiles.count == 2 * 617 + 2
    assert set(quantiles.bins) <= set(range(-EDGE, EDGE + 1))


def test_quantiles_weight_values_by_count():
    quantiles = filled([*[1.0] * 9, 100.0])
    assert quantiles.quantile(0.9) == pytest.approx(1.0, rel=0.01)
    assert quantiles.quantile(0.91) == pytest.approx(100.0, rel=0.01)


def test_empty_sketch_has_no_quantile():
    assert Quantiles().quantile(0.5) is None


def test_nan_is_ignored_and_negative_counts_as_zero():
    quantiles = filled([math.nan, -1e-9, 0.0])
    assert (quantiles.count, quantiles.quantile(1.0)) == (2, 0.0)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_share_outside_zero_to_one_is_refused(q):
    with pytest.raises(ValueError, match="quantile must be between"):
        filled([1.0]).quantile(q)
