"""Padding by hand, and of the lengths 16 + 496 u^3 padded to 512, u even between 0 and 1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.padding import Padding

CUBIC = [(round(16 + 496 * ((i + 0.5) / 4000) ** 3), 512) for i in range(4000)]


def padding(lengths):
    """Return the padding of sequences given as (needed, padded) lengths."""
    needed, padded = zip(*lengths, strict=True)
    return Padding(sum(padded) / sum(needed), sum(p * p for p in padded) / sum(n * n for n in needed))


def test_two_sequences():
    pair = padding([(100, 200), (200, 200)])
    assert pair.tokens == pytest.approx(400 / 300)
    assert pair.pairs == pytest.approx(80000 / 50000)


def test_a_step_that_is_all_tokens_all_pairs_and_half_of_each():
    pair = Padding(tokens=2, pairs=4)
    assert pair.speedup(0) == (2, 2, 4)
    assert pair.speedup(1) == (2, 4, 4)
    assert pair.speedup(0.5) == pytest.approx((2, 1 / (0.25 + 0.125), 4))


def test_a_measured_speedup_lies_within():
    """Measured with such lengths: a step 4.2 times as fast."""
    low, expected, high = padding(CUBIC).speedup(0.3)
    assert (low, high) == pytest.approx((3.66, 6.66), abs=0.02)
    assert low < 4.2 < high
    assert expected == pytest.approx(4.2, rel=0.05)


@given(st.lists(st.integers(1, 4096), min_size=1), st.integers(0, 100), st.floats(0, 1))
def test_padding_to_one_length_costs_pairs_more_than_tokens(lengths: list[int], more: int, attention: float):
    longest = max(lengths) + more
    found = padding((length, longest) for length in lengths)
    low, expected, high = found.speedup(attention)
    assert 1 <= low <= expected * (1 + 1e-9)
    assert expected <= high * (1 + 1e-9)
    assert found.pairs >= found.tokens * (1 - 1e-9)


def test_a_share_of_attention_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"1\.5"):
        Padding(2, 4).speedup(1.5)
