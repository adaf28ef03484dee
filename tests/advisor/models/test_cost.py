"""Hand-computed cost."""

import pytest

from advisor.models.cost import gpu_hours_ratio, money, saving


def test_money():
    assert money(23.33, 2.5) == pytest.approx(58.325)


def test_half_the_gpus_a_quarter_slower():
    assert gpu_hours_ratio((8, 4), (1.0, 1.25)) == pytest.approx(0.625)


def test_a_share_of_step_time_of_every_hundred_hours():
    assert saving(0.3, None).gpu_hours == pytest.approx(30)
    assert saving(0.3, None).money is None
    assert saving(0.3, 2.5).money == pytest.approx(75)
    assert saving(-0.1, 2.5).money == pytest.approx(-25)


def test_no_gpus_are_refused():
    with pytest.raises(ValueError, match="no hours of"):
        gpu_hours_ratio((0, 1), (1, 1))
