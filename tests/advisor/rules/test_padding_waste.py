"""Padding, by hand; and for lengths 16 + 496 u^3 padded to 512, with u uniform between 0 and 1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.rules.padding_waste import speedup

CUBIC = [(round(16 + 496 * ((i + 0.5) / 4000) ** 3), 512) for i in range(4000)]


def padding(lengths):
    """Return the padding of sequences given as (needed, padded) lengths."""
    needed, padded = zip(*lengths, strict=True)
    return (sum(padded) / sum(needed), sum(p * p for p in padded) / sum(n * n for n in needed))


def test_two_sequences():
    assert padding([(100, 200), (200, 200)]) == pytest.approx((400 / 300, 80000 / 50000))


def test_speedup_interpolates_between_tokens_and_pairs():
    assert speedup(2, 4, 0) == (2, 2, 4)
    assert speedup(2, 4, 1) == (2, 4, 4)
    assert speedup(2, 4, 0.5) == pytest.approx((2, 1 / (0.25 + 0.125), 4))


def test_measured_speedup_is_within_interval():
    """A step was measured to be 4.2 times as fast with such lengths."""
    low, expected, high = speedup(*padding(CUBIC), 0.3)
    assert (low, high) == pytest.approx((3.66, 6.66), abs=0.02)
    assert low < 4.2 < high
    assert expected == pytest.approx(4.2, rel=0.05)


@given(st.lists(st.integers(1, 4096), min_size=1), st.integers(0, 100), st.floats(0, 1))
def test_padding_to_one_length_costs_pairs_more_than_tokens(lengths: list[int], more: int, attention: float):
    longest = max(lengths) + more
    tokens, pairs = padding((length, longest) for length in lengths)
    low, expected, high = speedup(tokens, pairs, attention)
    assert 1 <= low <= expected * (1 + 1e-9)
    assert expected <= high * (1 + 1e-9)
    assert pairs >= tokens * (1 - 1e-9)
