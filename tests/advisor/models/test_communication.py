"""Hand-computed collectives: 350 M fp32 gradients over 8 ranks."""

import pytest

from advisor.models.sharding import all_reduce_bytes, zero_bytes

GRADIENTS, RANKS = 350e6 * 4, 8


def test_zero_moves_as_much_as_ddp_except_stage_3():
    volume = all_reduce_bytes(GRADIENTS, RANKS)
    assert volume == pytest.approx(2 * 7 / 8 * 1.4e9)
    assert [zero_bytes(GRADIENTS, RANKS, stage) / volume for stage in range(4)] == pytest.approx([1, 1, 1, 1.5])


def test_one_rank_sends_nothing():
    assert all_reduce_bytes(GRADIENTS, 1) == 0


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: all_reduce_bytes(-1, 2),
        lambda: all_reduce_bytes(1, 0),
        lambda: zero_bytes(1, 2, 4),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"rank|bytes|negative|stage"):
        nonsense()
