"""Hand-computed collectives: 350 M fp32 gradients over 8 ranks at 10 GB/s, behind a backward pass of 0.15 s."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.communication import (
    BUCKET,
    all_reduce_bytes,
    exposed,
    zero_bytes,
)

GRADIENTS, RANKS = 350e6 * 4, 8


@pytest.mark.parametrize(("size", "takes", "shows"), [(GRADIENTS, 0.245, 0.110), (GRADIENTS / 2, 0.1225, 0.0046)])
def test_what_a_backward_pass_does_not_hide(size: float, takes: float, shows: float):
    """In fp32, and with the bf16 hook, whose last bucket of 25 MiB counts as uncompressed."""
    collectives, last = (all_reduce_bytes(part, RANKS) / 10e9 for part in (size, BUCKET))

    assert collectives == pytest.approx(takes)
    assert exposed(collectives, 0.15, last) == pytest.approx(shows, abs=5e-5)


def test_zero_moves_as_much_but_for_stage_3():
    volume = all_reduce_bytes(GRADIENTS, RANKS)
    assert volume == pytest.approx(2 * 7 / 8 * 1.4e9)
    assert [zero_bytes(GRADIENTS, RANKS, stage) / volume for stage in range(4)] == pytest.approx([1, 1, 1, 1.5])


def test_one_rank_sends_nothing():
    assert all_reduce_bytes(GRADIENTS, 1) == 0


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 10))
def test_exposed_lies_between_the_last_bucket_and_everything(collectives: float, backward: float, bucket: float):
    assert min(bucket, collectives) <= exposed(collectives, backward, bucket) <= collectives


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: all_reduce_bytes(-1, 2),
        lambda: all_reduce_bytes(1, 0),
        lambda: exposed(-1, 1, 1),
        lambda: zero_bytes(1, 2, 4),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"rank|bytes|negative|stage"):
        nonsense()
