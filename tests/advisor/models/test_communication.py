"""Hand-computed collectives: 350 M fp32 gradients over 8 ranks at 10 GB/s."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.communication import (
    all_reduce_bytes,
    all_reduce_time,
    exposed,
    exposed_all_reduce,
    straggler_share,
    zero_bytes,
)

GRADIENTS, RANKS, LINK = 350e6 * 4, 8, 10e9
FORWARD, BACKWARD, OPTIMIZER = 0.075, 0.15, 0.01


def step(size: float) -> float:
    return FORWARD + BACKWARD + OPTIMIZER + exposed_all_reduce(size, RANKS, LINK, BACKWARD)


def test_fp32_gradients():
    assert all_reduce_time(GRADIENTS, RANKS, LINK) == pytest.approx(0.245)
    assert exposed_all_reduce(GRADIENTS, RANKS, LINK, BACKWARD) == pytest.approx(0.110)
    assert step(GRADIENTS) == pytest.approx(0.345)


def test_the_bf16_hook():
    half = GRADIENTS / 2
    assert all_reduce_time(half, RANKS, LINK) == pytest.approx(0.1225)
    assert exposed_all_reduce(half, RANKS, LINK, BACKWARD) == pytest.approx(0.0046, abs=5e-5)
    assert step(half) == pytest.approx(0.2396, abs=5e-5)
    assert step(GRADIENTS) / step(half) == pytest.approx(1.44, abs=0.005)


def test_zero_moves_as_much_but_for_stage_3():
    volume = all_reduce_bytes(GRADIENTS, RANKS)
    assert volume == pytest.approx(2 * 7 / 8 * 1.4e9)
    assert [zero_bytes(GRADIENTS, RANKS, stage) / volume for stage in range(4)] == pytest.approx([1, 1, 1, 1.5])


def test_one_rank_sends_nothing():
    assert all_reduce_bytes(GRADIENTS, 1) == 0
    assert exposed_all_reduce(GRADIENTS, 1, LINK, BACKWARD) == 0


def test_a_small_model_has_one_bucket_and_hides_nothing_of_it():
    assert exposed_all_reduce(1e6, RANKS, LINK, BACKWARD) == pytest.approx(all_reduce_time(1e6, RANKS, LINK))


def test_the_slowest_rank_makes_the_others_wait():
    assert straggler_share([0.08, 0.08, 0.1, 0.08]) == pytest.approx(0.2)
    assert straggler_share([0.05, 0.1]) == pytest.approx(0.5), "of two the lower is the median"
    assert straggler_share([0.1]) == 0


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 10))
def test_exposed_lies_between_the_last_bucket_and_everything(collectives: float, backward: float, bucket: float):
    assert min(bucket, collectives) <= exposed(collectives, backward, bucket) <= collectives


@given(st.lists(st.floats(0, 10), min_size=1, max_size=9))
def test_a_straggler_costs_a_share(times: list[float]):
    assert 0 <= straggler_share(times) <= 1


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: all_reduce_bytes(-1, 2),
        lambda: all_reduce_bytes(1, 0),
        lambda: all_reduce_time(1, 2, 0),
        lambda: exposed(-1, 1, 1),
        lambda: zero_bytes(1, 2, 4),
        lambda: straggler_share([]),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"rank|bytes|negative|stage"):
        nonsense()
