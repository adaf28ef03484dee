"""Hand-computed cost: 1e5 steps on 8 GPUs that go from .345 to .24 s."""

import pytest

from advisor.models.cost import energy, gpu_hours, gpu_hours_ratio, money, power, saving

before, after = gpu_hours(1e5, 0.345, 8), gpu_hours(1e5, 0.24, 8)


def test_gpu_hours_and_money():
    assert (before, after) == pytest.approx((76.67, 53.33), abs=0.005)
    assert money(before - after, 2.5) == pytest.approx(58.33, abs=0.005)


def test_energy_is_not_proportional_to_time():
    saved = energy(before, 420) - energy(after, 560)
    assert saved == pytest.approx(2.8, abs=0.005)


def test_half_the_gpus_a_quarter_slower():
    assert gpu_hours_ratio((8, 4), (1.0, 1.25)) == pytest.approx(0.625)


def test_a_share_of_step_time_of_every_hundred_hours():
    assert saving(0.3, None).gpu_hours == pytest.approx(30)
    assert saving(0.3, None).money is None
    assert saving(0.3, 2.5).money == pytest.approx(75)
    assert saving(-0.1, 2.5).money == pytest.approx(-25)


def test_a_busier_gpu_draws_more():
    """100 W idle, 420 W at .6 busy: 320 W go with being busy."""
    assert power(420, 100, (0.6, 0.9)) == pytest.approx(100 + 320 * 1.5)
    assert power(420, 100, (0.6, 0.6)) == pytest.approx(420)
    assert power(420, 100, (0.6, 0.0)) == pytest.approx(100)


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: gpu_hours(1, -1, 1),
        lambda: gpu_hours_ratio((0, 1), (1, 1)),
        lambda: power(100, 200, (0.5, 0.5)),
        lambda: power(100, 50, (0, 0.5)),
        lambda: energy(1, 100, pue=0.9),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match="no "):
        nonsense()
