"""Hand-computed cost."""

import pytest

from advisor.models.cost import saving


def test_saving_of_gpu_hours_and_money_per_100_hours():
    assert saving(0.3, None).gpu_hours == pytest.approx(30)
    assert saving(0.3, None).money is None
    assert saving(0.3, 2.5).money == pytest.approx(75)
    assert saving(-0.1, 2.5).money == pytest.approx(-25)
