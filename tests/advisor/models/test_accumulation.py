"""Hand-computed accumulation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.memory import pieces


@pytest.mark.parametrize(
    ("batch", "largest", "k", "micro"), [(64, 16, 4, 16), (64, 63, 2, 32), (10, 4, 3, 4), (8, 1, 8, 1)]
)
def test_uses_fewest_micro_batches_that_fit(batch: int, largest: int, k: int, micro: int):
    assert pieces(batch, largest) == (k, micro)


@given(st.integers(1, 10000), st.integers(1, 1000))
def test_micro_batches_fit_and_add_up_to_batch(batch: int, largest: int):
    k, micro = pieces(batch, largest)
    assert micro <= largest
    assert batch <= k * micro < batch + k
    assert (k - 1) * largest < batch, "one piece fewer would not do"


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match=r"\d"):
        pieces(8, 0)
