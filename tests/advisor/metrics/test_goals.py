import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Goals, Missing
from advisor.metrics.goals import declared_goals

TRAINED = rank(steps=steps(*[0.1] * 40))


def test_what_was_declared_by_name():
    assert metrics(TRAINED)[declared_goals] == ()
    assert metrics(TRAINED, goals=Goals(gpu_price=2.5, capacity=True))[declared_goals] == ("gpu_price", "capacity")


def test_without_a_step_there_is_nothing_to_have_a_goal_for():
    with pytest.raises(Missing):
        metrics(rank())[declared_goals]
