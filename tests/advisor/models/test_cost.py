"""Hand-computed cost: 1e5 steps on 8 GPUs that go from .345 to .24 s."""

import pytest

from advisor.models.cost import gpu_hours, gpu_hours_ratio, money, saving

before, after = gpu_hours(1e5, 0.345, 8), gpu_hours(1e5, 0.24, 8)


def test_gpu_hours_and_money():
    assert (before, after) == pytest.approx((76.67, 53.33), abs=0.005)
    assert money(before - after, 2.5) == pytest.approx(58.33, abs=0.005)


def test_half_the_gpus_a_quarter_slower():
    assert gpu_hours_ratio((8, 4), (1.0, 1.25)) == pytest.approx(0.625)


def test_a_share_of_step_time_of_every_hundred_hours():
    assert saving(0.3, None).gpu_hours == pytest.approx(30)
    assert saving(0.3, None).money is None
    assert saving(0.3, 2.5).money == pytest.approx(75)
    assert saving(-0.1, 2.5).money == pytest.approx(-25)


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: gpu_hours(1, -1, 1),
        lambda: gpu_hours_ratio((0, 1), (1, 1)),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match="no "):
        nonsense()
