"""Hand-computed accumulation; times in ms."""

import pytest

from advisor.models.accumulation import critical_batch, pieces, split_time, step_time


def test_collectives_once_an_update_or_every_micro_step():
    plain = step_time(90, 10, 50, 1, no_sync=True)
    shared = step_time(90, 10, 50, 4, no_sync=True) / 4
    repeated = step_time(90, 10, 50, 4, no_sync=False) / 4
    assert (plain, shared, repeated) == pytest.approx((150, 105, 142.5))
    assert plain / shared == pytest.approx(1.43, abs=0.005)
    assert repeated / shared == pytest.approx(1.357, abs=0.0005)


def test_splitting_a_batch_is_never_faster():
    assert split_time(40, 10, 16, 1) == 200
    assert split_time(40, 10, 16, 4) == 320


@pytest.mark.parametrize(
    ("batch", "largest", "k", "micro"), [(64, 16, 4, 16), (64, 63, 2, 32), (10, 4, 3, 4), (8, 1, 8, 1)]
)
def test_as_few_pieces_as_fit(batch: int, largest: int, k: int, micro: int):
    assert pieces(batch, largest) == (k, micro)


def test_critical_batch_from_two_gradient_norms():
    assert critical_batch((32, 256), (2.0, 1.1)) == pytest.approx(33.9, abs=0.05)
