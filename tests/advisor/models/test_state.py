"""A step and its floors, by hand-computed compositions."""

from dataclasses import replace

import pytest

from advisor.models.effects import divide, remove
from advisor.models.gpus import peaks
from advisor.models.input_pipeline import Workers
from advisor.models.precision import ATTAINED_HALF, MEMBOUND_SPEEDUP, faster, speedup
from advisor.models.state import Scenario, State, removed

A100 = peaks("NVIDIA A100-SXM4-80GB")


def faster_gpu(state: State) -> State:
    return state.without("forward", 0.05)


def faster_loader(state: State) -> State:
    return replace(state, supply=0.05)


STARVED = State(phases={"forward": 0.1}, supply=0.2)


def test_a_faster_gpu_behind_a_slow_loader_gains_nothing():
    assert removed(STARVED, faster_gpu(STARVED)) == 0
    assert removed(STARVED, faster_loader(STARVED)) == pytest.approx(0.5)
    assert removed(STARVED, faster_gpu(faster_loader(STARVED))) == pytest.approx(0.75)


def test_the_same_idle_time_is_gained_once():
    state = State(phases={"forward": 0.6, "other": 0.4})
    rule = remove("other", shares=(1, 1, 1))
    once = rule(state, Scenario.EXPECTED)
    assert removed(state, once) == pytest.approx(0.4)
    assert removed(state, rule(once, Scenario.EXPECTED)) == pytest.approx(0.4)


def test_disjoint_phases_compose():
    state = State(phases={"forward": 0.3, "backward": 0.5, "other": 0.2})
    third, half = divide("forward", by=(3, 3, 3)), divide("backward", by=(2, 2, 2))
    after = half(third(state, Scenario.EXPECTED), Scenario.EXPECTED)
    assert after.time == pytest.approx(0.55)
    assert state.time / after.time == pytest.approx(1.82, abs=0.005)


def test_a_chain_of_loader_precision_and_optimizer():
    """A100, 12 cores, ms: 80 wait + 70 fp32 matmuls at 16 TFLOP/s + 25 memory-bound + 10 optimizer + 15 idle."""
    assert A100
    start = State(
        phases={"forward": 0.040, "backward": 0.070, "optimizer": 0.010}, supply=0.200, matmul=0.070, membound=0.025
    )
    half = faster([(1, speedup(ATTAINED_HALF, A100.half, (16e12, 16e12, 16e12)))], MEMBOUND_SPEEDUP)
    assert start.time == 0.200
    assert removed(start, half(start, Scenario.EXPECTED)) == 0

    workers = Workers(batch_time=0.400, worker_cpu_share=0.8, cores=11, host_cores=12)
    supplied = replace(start, supply=0.0, workers=workers)
    assert workers.number(supplied.compute) == 5
    assert supplied.time == pytest.approx(0.120)
    assert removed(start, supplied) == pytest.approx(0.40)

    low, expected, high = (half(supplied, s) for s in Scenario)
    assert [s.compute for s in (low, expected, high)] == pytest.approx([0.0620, 0.0494, 0.0437], abs=5e-5)
    assert workers.number(expected.compute) == 10
    assert workers.supply(expected.compute) == pytest.approx(0.040)
    assert expected.time == pytest.approx(0.0494, abs=5e-5)

    fuse = divide("optimizer", by=(1.3, 2, 4))
    assert removed(start, fuse(start, Scenario.EXPECTED)) == 0, "alone, behind the loader"
    fused = fuse(expected, Scenario.EXPECTED)
    assert fused.time == pytest.approx(0.0444, abs=5e-5)
    assert removed(expected, fused) == pytest.approx(0.101, abs=0.0005), "in the plan"
    assert start.time / fused.time == pytest.approx(4.5, abs=0.01)

    # Precision and optimizer are disjoint phases: in the other order, the result is the same.
    swapped = half(fuse(supplied, Scenario.EXPECTED), Scenario.EXPECTED)
    assert swapped.time == pytest.approx(fused.time)


def test_workers_for_a_step_of_several_batches():
    one = Workers(batch_time=0.2, worker_cpu_share=0.1, cores=7, host_cores=8)
    four = Workers(batch_time=0.2, worker_cpu_share=0.1, cores=7, host_cores=8, batches=4)
    assert four.number(0.2) == one.number(0.05) == 5
    assert four.supply(0.2) == pytest.approx(4 * one.supply(0.05))


def test_one_core_is_shared_by_all():
    assert Workers(batch_time=0.1, worker_cpu_share=1, cores=1, host_cores=1, compute_threads=1).supply(
        0.1
    ) == pytest.approx(0.2)


def test_the_host_cannot_launch_faster():
    state = State(phases={"forward": 0.1}, launch=0.09)
    assert state.without("forward", 0.06).time == pytest.approx(0.09)


def test_time_between_steps_is_not_hidden_by_a_floor():
    state = State(phases={"forward": 0.1}, supply=0.2, between={"evaluation": 0.05})
    assert state.compute == pytest.approx(0.1)
    assert state.time == pytest.approx(0.25)
    assert state.scaled("evaluation", 0.5).time == pytest.approx(0.225)
    assert state.without("evaluation", 1.0).time == pytest.approx(0.2)


def test_no_phase_falls_below_zero_and_none_grows_by_removal():
    state = State(phases={"forward": 0.1})
    assert state.without("forward", 1.0).time == 0
    assert state.without("forward", -1.0).time == pytest.approx(0.1)
    assert removed(State(phases={}), State(phases={})) == 0
