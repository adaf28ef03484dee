import pytest
from profiles import metrics, rank

from advisor.metrics.base import Missing
from advisor.metrics.settings import (
    debug_modes,
    evaluation_grad,
    flags,
    model,
    optimizer,
    optimizers,
    scaler,
    skipped_step_fraction,
    world_size,
)
from profiler.schema import FlagsFact, ModelFact, OptimizerFact, ScalerFact


def test_the_largest_of_several():
    small, large = ModelFact(id=1, trainable=5), ModelFact(id=2, trainable=9)
    few, many = OptimizerFact(id=1, parameters=5), OptimizerFact(id=2, parameters=9)
    m = metrics(rank(models=(small, large), optimizers=(few, many)))

    assert m[model] is large
    assert m[optimizer] is many
    assert m[optimizers] == (few, many)


def test_world_size():
    assert metrics(rank(), rank(1))[world_size] == 2
    assert metrics(rank(process={"world_size": 8}))[world_size] == 8


def test_debug_modes():
    assert metrics(rank(flags=FlagsFact(deterministic=True, distributed_debug="OFF")))[debug_modes] == ()
    assert metrics(rank(flags=FlagsFact(anomaly=True, distributed_debug="DETAIL")))[debug_modes] == (
        "anomaly",
        "distributed_debug",
    )


def test_profiler_active_throughout_is_separate_mode():
    always = FlagsFact(program_profiler=True, profiled_throughout=True)

    assert metrics(rank(flags=FlagsFact(program_profiler=True)))[debug_modes] == ("program_profiler",)
    assert metrics(rank(flags=always))[debug_modes] == ("profiled_throughout",)


def test_launch_blocking_is_ignored_on_cpu():
    blocking = FlagsFact(launch_blocking=True)
    on_cpu = rank(flags=blocking, models=(ModelFact(id=1, devices={"cpu": 8}),))
    on_gpu = rank(flags=blocking, models=(ModelFact(id=1, devices={"cuda:0": 8}),))

    assert metrics(on_cpu)[debug_modes] == ()
    assert metrics(on_gpu)[debug_modes] == ("launch_blocking",)


def test_evaluation():
    assert metrics(rank(flags=FlagsFact(evaluation_grad=True)))[evaluation_grad] is True
    with pytest.raises(Missing, match="No evaluation"):
        metrics(rank(flags=FlagsFact()))[evaluation_grad]


def test_scaler():
    fact = ScalerFact(steps=2)

    assert metrics(rank(scaler=fact))[scaler] is fact


def test_skipped_steps_exclude_scale_search():
    # 10 000 steps may skip 16 to find the scale and 5 to try a larger one: 121 - 21 = 100 skips are too many.
    assert metrics(rank(scaler=ScalerFact(steps=10_000, skipped=121)))[skipped_step_fraction] == pytest.approx(0.01)
    assert metrics(rank(scaler=ScalerFact(steps=60, skipped=12)))[skipped_step_fraction] == 0.0
    with pytest.raises(Missing, match="no step"):
        metrics(rank(scaler=ScalerFact()))[skipped_step_fraction]


@pytest.mark.parametrize(
    "metric", [model, optimizer, flags, scaler, skipped_step_fraction, debug_modes, evaluation_grad]
)
def test_unobserved_settings_are_missing(metric):
    with pytest.raises(Missing) as caught:
        metrics(rank())[metric]

    assert caught.value.remedy
