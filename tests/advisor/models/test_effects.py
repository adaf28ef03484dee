"""Effects of advice on a step: hand-computed steps, and properties that hold for any step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.effects import (
    divide,
    divide_matmul,
    divide_membound,
    divide_step,
    faster_batches,
    in_turn,
    lengthen,
    relieve_host,
    remove,
    remove_launch_idle,
    remove_run,
    remove_seconds,
    remove_wait,
    shares_of,
    up_to,
)
from advisor.models.input_pipeline import Workers
from advisor.models.state import Effect, Scenario, State, removed

STEP = State(
    phases={"forward": 0.03, "backward": 0.05, "optimizer": 0.01, "other": 0.01},
    matmul=0.04,
    membound=0.02,
    launch_idle=0.01,
)


def times(effect: Effect, state: State = STEP) -> list[float]:
    return [effect(state, scenario).time for scenario in Scenario]


def expected(effect: Effect, state: State) -> State:
    return effect(state, Scenario.EXPECTED)


def test_a_share_of_a_phase_is_removed():
    assert times(remove("other", shares=up_to(1))) == pytest.approx([0.095, 0.092, 0.09])


def test_fixing_clock_at_60_percent_gains_up_to_40_percent():
    """G11: compute x (1 - clock) x (.5/.8/1)."""
    throttled = remove("forward", "backward", "optimizer", shares=up_to(0.4))
    assert times(throttled) == pytest.approx([0.01 + 0.09 * left for left in (0.8, 0.68, 0.6)])


def test_a_change_may_cost_time():
    """Selective recomputation: forward and backward 7, 4 or 2 % longer."""
    assert times(remove("forward", "backward", shares=(-0.07, -0.04, -0.02))) == pytest.approx([0.1056, 0.1032, 0.1016])


def test_kernels_shrink_with_the_phases_they_are_in():
    after = expected(divide("forward", "backward", by=(1, 2, 2)), STEP)
    assert (after.matmul, after.membound) == pytest.approx((0.02, 0.01))
    assert expected(divide("optimizer", by=(1, 2, 2)), STEP).matmul == STEP.matmul


def test_a_phase_is_divided():
    assert times(divide("optimizer", by=(1.3, 2, 4))) == pytest.approx([0.09 + 0.01 / 1.3, 0.095, 0.0925])


def test_a_portion_of_a_phase_is_divided():
    assert times(divide("backward", by=(1, 2, 5), portion=0.4)) == pytest.approx([0.1, 0.09, 0.084])


def test_what_was_not_measured_is_not_removed():
    assert times(remove("sync", shares=up_to(0.5))) == pytest.approx([0.1] * 3)
    assert "sync" not in remove("sync", shares=(0, 0, 0))(STEP, Scenario.LOW).phases


def test_a_share_between_steps_is_removed():
    state = replace(STEP, between={"evaluation": 0.1})
    assert times(remove("evaluation", shares=(0, 0.1, 0.3)), state) == pytest.approx([0.2, 0.19, 0.17])


def test_seconds_are_removed_once():
    once = remove_seconds("forward", "backward", seconds=0.06, shares=(0, 0.5, 1))
    assert times(once) == pytest.approx([0.1, 0.07, 0.04])
    assert times(in_turn(once, once))[2] == pytest.approx(0.02), "the phases have no more than .08 to lose"


def test_a_cost_is_the_highest_at_the_low_gain():
    assert times(lengthen("backward", (0.0120, 0.010, 0.009))) == pytest.approx([0.112, 0.11, 0.109])


def test_convolutions_are_a_portion_of_matmul_time():
    assert times(divide_matmul((1, 2, 4), portion=0.5)) == pytest.approx([0.1, 0.09, 0.085])
    assert expected(divide_matmul((1, 2, 4), portion=0.5), STEP).matmul == pytest.approx(0.03)


def test_memory_bound_kernels_are_divided_and_launches_saved():
    compiled = in_turn(divide_membound((1.2, 1.6, 2.5)), remove_launch_idle((0.3, 0.6, 0.8)))
    saved = [0.02 * (1 - 1 / 1.2) + 0.003, 0.02 * (1 - 1 / 1.6) + 0.006, 0.02 * (1 - 1 / 2.5) + 0.008]
    assert times(compiled) == pytest.approx([0.1 - seconds for seconds in saved])
    assert expected(compiled, STEP).membound == pytest.approx(0.0125)


def test_launch_bound_step_gains_from_fewer_launches():
    """G05's shape: 60 of 100 ms are idle because launches are late, so the host is the floor."""
    late = State(phases={"forward": 0.04, "backward": 0.06}, launch=0.1, launch_idle=0.06, matmul=0.02)
    assert removed(late, expected(divide_matmul((2, 2, 2)), late)) == 0
    graphs = remove_launch_idle((0.5, 0.75, 0.9))
    assert times(graphs, late) == pytest.approx([0.07, 0.055, 0.046])
    after = expected(graphs, late)
    assert (after.launch_idle, after.launch) == pytest.approx((0.015, 0.025))


def test_a_relieved_host_alone_changes_nothing():
    late = State(phases={"forward": 0.1}, launch=0.1)
    assert times(relieve_host((0.5, 0.5, 0.5)), late) == [0.1] * 3
    both = in_turn(relieve_host((0.5, 0.5, 0.5)), divide("forward", by=(2, 2, 4)))
    assert times(both, late) == pytest.approx([0.05] * 3)


def test_faster_step_does_not_speed_up_h2d_copies():
    state = State(phases={"forward": 0.08, "h2d": 0.02})
    assert times(divide_step((1, 2, 4)), state) == pytest.approx([0.1, 0.06, 0.04])


def test_skipped_share_of_run_removes_all_parts_of_step():
    slow = Workers(batch_time=0.4, worker_cpu_share=1.0, cores=2, host_cores=3)
    state = State(phases={"forward": 0.1}, workers=slow, between={"evaluation": 0.1}, launch=0.05)
    assert times(remove_run((0.1, 0.2, 0.5)), state) == pytest.approx([state.time * left for left in (0.9, 0.8, 0.5)])


@pytest.mark.parametrize(
    "state",
    [
        State(phases={"forward": 0.1}, load=0.1),
        State(phases={"forward": 0.1}, supply=0.2),
        State(phases={"forward": 0.1}, workers=Workers(batch_time=0.4, worker_cpu_share=1.0, cores=2, host_cores=8)),
    ],
    ids=["no workers", "slow workers", "as many workers as there are cores"],
)
def test_share_of_data_wait_is_removed_whatever_its_cause(state: State):
    assert state.time == pytest.approx(0.2)
    assert times(remove_wait((0.3, 0.6, 0.9)), state) == pytest.approx([0.17, 0.14, 0.11])


def test_faster_loader_stage_without_workers():
    state = State(phases={"forward": 0.1}, load=0.1)
    assert times(faster_batches(0.5, (0, 0.5, 1)), state) == pytest.approx([0.2, 0.175, 0.15])


def test_faster_format_reduces_only_reading_time():
    """batch_time (1 - io_share (1 - 1/x)) for x = 1.5, 3, 8."""
    reading = faster_batches(0.6, shares_of((1.5, 3, 8)), reading=True)
    alone = State(phases={"forward": 0.1}, load=0.2)
    assert times(reading, alone) == pytest.approx([0.1 + 0.2 * left for left in (0.8, 0.6, 0.475)])
    few = Workers(batch_time=0.4, worker_cpu_share=0.2, cores=1, host_cores=2)
    after = expected(reading, State(phases={"forward": 0.01}, workers=few)).workers
    assert after is not None
    assert after.batch_time * after.worker_cpu_share == pytest.approx(few.batch_time * few.worker_cpu_share), (
        "the CPU work of a batch stays"
    )


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: remove("other", shares=(0.8, 0.5, 1)),
        lambda: remove("other", shares=(0, 0.5, 1.1)),
        lambda: remove("other", shares=(0, 0.5, 1), portion=1.5),
        lambda: divide("other", by=(0, 1, 2)),
        lambda: divide("other", by=(3, 2, 1)),
        lambda: divide_matmul((1, 2, 3), portion=-0.1),
        lambda: lengthen("other", (1, 2, 3)),
        lambda: lengthen("other", (2, 1, -1)),
        lambda: remove_seconds("other", seconds=-1, shares=(0, 0, 0)),
        lambda: faster_batches(2, (0, 0, 0)),
        lambda: remove_wait((0, 0, 2)),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"ascend|portion|highest|work"):
        nonsense()


seconds = st.floats(0, 1)
shares = st.tuples(*[st.floats(0, 1)] * 3).map(lambda values: tuple(sorted(values)))
speedups = st.tuples(*[st.floats(1, 100)] * 3).map(lambda values: tuple(sorted(values)))
workers = st.builds(
    Workers,
    batch_time=st.floats(1e-4, 1),
    worker_cpu_share=st.floats(0, 1),
    cores=st.integers(1, 32),
    host_cores=st.integers(1, 32),
    batches=st.sampled_from([1.0, 4.0]),
    compute_threads=st.floats(0, 4),
    contention=st.sampled_from([1.0, 1.15, 1.5]),
)


@st.composite
def steps(draw: st.DrawFn) -> State:
    phases = {name: draw(seconds) for name in ("forward", "backward", "optimizer", "h2d", "communication", "other")}
    computing = phases["forward"] + phases["backward"]
    matmul, membound, idle = (draw(st.floats(0, 1 / 3)) * computing for _ in range(3))
    return State(
        phases=phases,
        between={"evaluation": draw(seconds)},
        load=draw(seconds),
        supply=draw(st.floats(0, 3)),
        workers=draw(st.none() | workers),
        launch=draw(st.floats(0, 1)) * sum(phases.values()),
        matmul=matmul,
        membound=membound,
        launch_idle=idle,
    )


ordered_effects = st.one_of(
    st.builds(lambda s: remove("forward", "backward", shares=s), shares),
    st.builds(lambda s: remove("communication", "other", shares=s), shares),
    st.builds(lambda s: remove("evaluation", shares=s), shares),
    st.builds(lambda by, portion: divide("forward", "optimizer", by=by, portion=portion), speedups, st.floats(0, 1)),
    st.builds(divide_step, speedups),
    st.builds(divide_matmul, speedups, st.floats(0, 1)),
    st.builds(divide_membound, speedups, st.floats(0, 1)),
    st.builds(remove_launch_idle, shares),
    st.builds(relieve_host, shares),
    st.builds(remove_wait, shares),
    st.builds(remove_run, shares),
    st.builds(lambda s, of: remove_seconds("forward", "backward", "other", seconds=s, shares=of), seconds, shares),
)
effects = ordered_effects | st.builds(faster_batches, st.floats(0, 1), shares, reading=st.booleans())
NEARLY = 1e-9


@given(steps(), effects)
def test_gain_is_between_zero_and_one(state: State, effect: Effect):
    for scenario in Scenario:
        assert -NEARLY <= removed(state, effect(state, scenario)) <= 1 + NEARLY


# With another number of workers for faster batches, contention may make the middle gain slightly the larger one.
@given(steps(), ordered_effects)
def test_low_expected_and_high_gain_are_in_order(state: State, effect: Effect):
    low, middle, high = (removed(state, effect(state, scenario)) for scenario in Scenario)
    assert low <= middle + NEARLY
    assert middle <= high + NEARLY


@given(steps(), st.lists(effects, max_size=5))
def test_no_step_is_shorter_than_its_floors(state: State, changes: list[Effect]):
    after = in_turn(*changes)(state, Scenario.HIGH)
    assert after.time >= after.launch - NEARLY
    assert after.time >= after.supply * (after.workers is None) - NEARLY
    assert after.time >= (after.workers.supply(after.compute) if after.workers else 0.0) - NEARLY
    assert min(after.phases.values()) >= 0
    assert min(after.matmul, after.membound, after.launch_idle) >= -NEARLY


@given(steps(), speedups, shares)
def test_disjoint_phases_may_come_in_any_order(state: State, by: tuple, of: tuple):
    state = replace(state, workers=None, supply=0.0, launch=0.0)
    first, second = divide("forward", "backward", by=by), remove("optimizer", "communication", shares=of)
    for scenario in Scenario:
        one, other = (in_turn(*pair)(state, scenario) for pair in ((first, second), (second, first)))
        assert one.time == pytest.approx(other.time)
    alone = [removed(state, expected(effect, state)) for effect in (first, second)]
    assert removed(state, expected(in_turn(first, second), state)) == pytest.approx(sum(alone), abs=1e-9)


@given(steps(), speedups, speedups)
def test_effects_on_same_phase_multiply(state: State, by: tuple, again: tuple):
    both = in_turn(divide("forward", by=by), divide("forward", by=again))
    product = tuple(a * b for a, b in zip(by, again, strict=True))
    assert expected(both, state).time == pytest.approx(expected(divide("forward", by=product), state).time)
