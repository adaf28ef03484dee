import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Goals, Missing
from advisor.metrics.goals import (
    declared_goals,
    queue_share,
    spot_discount,
    stale_validations,
    target_per_rank,
    time_between_failures,
    validations,
)
from profiler.schema import ModelFact

TRAINED = rank(steps=steps(*[0.1] * 40))


def test_declared_goals_are_listed_by_name():
    assert metrics(TRAINED)[declared_goals] == ()
    assert metrics(TRAINED, goals=Goals(gpu_price=2.5, goal="cost"))[declared_goals] == ("goal", "gpu_price")


def test_target_batch_is_divided_among_ranks():
    eight = rank(process={"world_size": 8})
    assert metrics(eight, goals=Goals(target_batch=512))[target_per_rank] == 64
    assert metrics(eight)[target_per_rank] is None
    halves = rank(process={"world_size": 8}, models=(ModelFact(id=1, name="Net", data_parallel=4),))
    assert metrics(halves, goals=Goals(target_batch=512))[target_per_rank] == 128  # two ranks compute the same samples


@pytest.mark.parametrize(
    ("goals", "more"),
    [
        (Goals(), False),
        (Goals(goal="cost"), False),
        (Goals(goal="memory"), True),
        (Goals(capacity=True), True),
        (Goals(target_batch=64), True),
    ],
)
def test_more_memory_is_wanted_by_several_goals(goals, more):
    assert goals.more_memory is more


def test_declared_goals_are_missing_without_steps():
    with pytest.raises(Missing):
        metrics(rank())[declared_goals]


@pytest.mark.parametrize(
    ("one", "goals", "value"),
    [
        (time_between_failures, Goals(mtbf=7200.0), 7200.0),
        (spot_discount, Goals(spot_discount=0.65), 0.65),
        (queue_share, Goals(queue_share=0.0), 0.0),
        (validations, Goals(validation=(0.1, 0.2)), 2),
    ],
)
def test_undeclared_goals_are_missing_rather_than_guessed(one, goals, value):
    assert metrics(rank(), goals=goals)[one] == value
    with pytest.raises(Missing) as missing:
        metrics(rank())[one]
    assert "profile-train report RUN --" in missing.value.remedy


@pytest.mark.parametrize(
    ("values", "stale"),
    [
        ((0.5,), 0),
        ((0.5, 0.6, 0.7), 0),
        ((0.7, 0.6, 0.5), 2),
        ((0.7, 0.7005, 0.7), 2),  # less than a thousandth better
        ((0.7, 0.7005, 0.7010, 0.7), 1),  # small steps add up
        ((-2.0, -1.9, -1.95), 1),  # a negated loss
        ((0.0, 0.0), 1),
    ],
)
def test_validations_since_the_best(values, stale):
    assert metrics(rank(), goals=Goals(validation=values))[stale_validations] == stale
