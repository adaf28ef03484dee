"""Ranks of one job, with hand-computed numbers."""

from dataclasses import replace

import pytest
from profiles import metrics, rank, steps

from advisor.metrics import communication as comm
from advisor.metrics.base import Missing
from profiler.schema import TAG_CHECKPOINT, DdpFact, Exchange, ModelFact, Operator, TraceFact, Window, WindowsFact

# 40 passes, 4 per step; a reduction takes 30 ms, of which 20 ms are hidden by the backward pass.
DDP = DdpFact(
    id=1,
    backend="gloo",
    gradient_bytes=1000,
    dtypes=("float32",),
    steps=10,
    passes=40,
    reduced=40,
    samples=6,
    compute=0.05,
    communication=0.03,
    overlap=0.02,
)


def a_rank(number: int, *durations: float, world: int = 2, ddp=(), windows=(), started: float = 0.0, **columns):
    """Return a rank of thirty steps, if one duration is given; steps have one pass unless stated otherwise."""
    rows = steps(*(durations * 30 if len(durations) == 1 else durations), **columns)
    made = rank(number, process={"world_size": world}, steps=rows, ddp=ddp, windows=windows)
    return replace(made, process=replace(made.process, started=started))


def lockstep(*own: float, step: float = 0.1, **columns):
    """Return ranks with `own` seconds of other work before the backward pass, which takes the rest of the step."""
    return [
        a_rank(number, step, world=len(own), backward=step - each, other=each, **columns)
        for number, each in enumerate(own)
    ]


def one_slower(slower: float, compute: float = 0.050, timed: float = 1.2, samples: int = 6, forward: float = 0.020):
    """Return the skew of ranks of 20 + 50 + 10 ms; the second is `slower` times as long, and the first waits for it."""
    step = slower * 0.080
    fast = a_rank(
        0, step, forward=forward, optimizer=0.010, backward=step - 0.030, ddp=(replace(DDP, compute=compute),)
    )
    slow = a_rank(
        1, step, forward=slower * 0.020, optimizer=slower * 0.010, backward=slower * 0.050,
        ddp=(replace(DDP, compute=timed * 0.050, samples=samples),),
    )  # fmt: skip
    return metrics(fast, slow)[comm.straggler_skew]


def test_slower_rank_is_found_from_ddp_backward_times():
    assert one_slower(1.2) == pytest.approx(0.2)
    assert one_slower(1.2, samples=comm.FEWEST_SAMPLES - 1) == pytest.approx(0.096 / 0.090 - 1)


def test_ddp_backward_times_are_bounded_by_forward_difference():
    """A hiccup in one of the few passes that torch times is not a slow GPU."""
    assert one_slower(1.0, timed=1.5) == pytest.approx(0.0)
    assert one_slower(1.2, forward=0.024) == pytest.approx(0.096 / 0.090 - 1)


# ---- what DistributedDataParallel reports ----


def test_each_pass_reduces():
    m = metrics(a_rank(0, 0.4, ddp=(DDP,), micro_steps=4.0), a_rank(1, 0.4))
    assert m[comm.reductions_per_step] == 4.0
    assert m[comm.exposed_comm_seconds] == pytest.approx(4 * 0.01)
    assert m[comm.comm_total] == pytest.approx(4 * 0.03)
    assert m[comm.comm_bytes] == pytest.approx(4 * 2 * 1 / 2 * 1000)


def test_gradients_are_reduced_over_data_parallel_ranks():
    halves = (ModelFact(id=1, name="Net", data_parallel=2),)
    ranks = [replace(a_rank(number, 0.4, world=4, ddp=(DDP,)), models=halves) for number in range(4)]
    assert metrics(*ranks)[comm.comm_bytes] == pytest.approx(2 * 1 / 2 * 1000)


def test_the_last_of_four_passes_reduces():
    m = metrics(a_rank(0, 0.4, ddp=(replace(DDP, reduced=10),), micro_steps=4.0), a_rank(1, 0.4))
    assert m[comm.reductions_per_step] == 1.0
    assert m[comm.exposed_comm_seconds] == pytest.approx(0.01)


def test_two_forward_passes_and_one_backward_pass_reduce_once():
    m = metrics(a_rank(0, 0.4, ddp=(DDP,), micro_steps=1.0))
    assert m[comm.reductions_per_step] == 1.0


def test_largest_ddp_model_counts():
    small = replace(DDP, id=2, gradient_bytes=10, reduced=10)
    assert metrics(a_rank(0, 0.4, ddp=(small, DDP)))[comm.ddp] == DDP


@pytest.mark.parametrize("facts", [(), (replace(DDP, passes=0, reduced=0),)])
def test_without_passes_nothing_is_known(facts):
    with pytest.raises(Missing):
        metrics(a_rank(0, 0.4, ddp=facts))[comm.reductions_per_step]


@pytest.mark.parametrize("fact", [replace(DDP, samples=3), replace(DDP, samples=0, communication=None)])
def test_too_few_timed_reductions_are_no_measurement(fact):
    m = metrics(a_rank(0, 0.4, ddp=(fact,)))
    for each in (comm.exposed_comm_seconds, comm.comm_total):
        with pytest.raises(Missing):
            m[each]


def test_comm_bytes_are_unknown_with_comm_hook():
    with pytest.raises(Missing):
        metrics(a_rank(0, 0.4, ddp=(replace(DDP, comm_hook="powerSGD"),)))[comm.comm_bytes]


@pytest.mark.parametrize(("gradients", "ranks"), [(-1, 2), (1000, -2)])
def test_bytes_of_a_damaged_store_are_not_reported(gradients, ranks):
    models = (ModelFact(id=1, name="Net", data_parallel=ranks),)
    rank = replace(a_rank(0, 0.4, ddp=(replace(DDP, gradient_bytes=gradients),)), models=models)
    with pytest.raises(Missing, match="impossible value"):
        metrics(rank)[comm.comm_bytes]


def test_single_rank_has_no_communication():
    with pytest.raises(Missing):
        metrics(a_rank(0, 0.4, world=1, ddp=(DDP,)))[comm.exposed_comm_seconds]


# ---- what steps and windows measure comes first ----


def test_communication_of_steps():
    assert metrics(a_rank(0, 0.1, communication=0.03, ddp=(DDP,)))[comm.exposed_comm_seconds] == pytest.approx(0.03)


def test_communication_of_windows():
    windows = tuple(
        Window(
            pid=1,
            start=0.0,
            steps=2,
            duration=0.2,
            cost=0.0,
            device="cuda",
            communication=0.1,
            communication_exposed=exposed,
        )
        for exposed in (0.03, 0.05)
    )
    m = metrics(a_rank(0, 0.1, windows=windows, ddp=(DDP,)))
    assert m[comm.exposed_comm_seconds] == pytest.approx(0.2 * 0.1)
    assert m[comm.comm_total] == pytest.approx(0.05)


# ---- comparison of ranks ----


def test_on_a_cpu_ranks_wait_in_their_backward_pass():
    m = metrics(*lockstep(0.02, 0.08))
    # Rank 1 has the shortest backward pass, 20 ms: rank 0 works 20 + 20 ms, rank 1 80 + 20 ms.
    assert [work.median for work in m[comm.own_work]] == pytest.approx([0.04, 0.1])
    assert m[comm.straggler_skew] == pytest.approx(0.1 / 0.04 - 1)
    assert m[comm.straggler_wait] == pytest.approx(0.06)
    assert m[comm.straggler_persistence] == 1
    assert m[comm.common_step_count] == 20
    assert m[comm.own_work][1].phases["other"] == pytest.approx(0.08)
    assert "backward" not in m[comm.own_work][1].phases


def test_measured_communication_is_used_instead_of_backward_pass():
    m = metrics(
        a_rank(0, 0.1, backward=0.03, communication=0.05),
        a_rank(1, 0.1, backward=0.06, communication=0.02),
    )
    assert [work.median for work in m[comm.own_work]] == pytest.approx([0.05, 0.08])
    assert m[comm.straggler_skew] == pytest.approx(0.6)
    assert m[comm.exposed_transfer] == pytest.approx(0.05 - 0.03), "once rank 1 is there"


def test_slowest_rank_is_compared_with_lower_median():
    m = metrics(*lockstep(0.03, 0.05, 0.04, 0.08))
    assert m[comm.straggler_skew] == pytest.approx((0.08 + 0.02) / (0.04 + 0.02) - 1)


def test_the_slowest_rank_waits_for_none():
    assert metrics(*lockstep(0.08, 0.02))[comm.straggler_wait] == 0


def test_ranks_taking_turns_being_slow_have_wait_but_no_straggler():
    turns = [0.02, 0.06] * 15
    backward = [0.08, 0.04] * 15

    def one(number, own, back):
        rows = steps(*[0.1] * 30)
        made = tuple(replace(row, other=o, backward=b) for row, o, b in zip(rows, own, back, strict=True))
        return replace(a_rank(number, 0.1), steps=made)

    m = metrics(one(0, turns, backward), one(1, turns[::-1], backward[::-1]))
    assert m[comm.straggler_skew] == pytest.approx(0)
    assert m[comm.straggler_wait] == pytest.approx(0.02), "40 ms in every other step"
    assert m[comm.straggler_persistence] == 0.5


def test_steps_that_are_not_steady_on_every_rank_are_left_out():
    first, second = lockstep(0.02, 0.08)
    saving = replace(second.steps[20], tags=TAG_CHECKPOINT, duration=5.0)
    second = replace(second, steps=(*second.steps[:20], saving, *second.steps[21:]))
    m = metrics(first, second)
    assert m[comm.common_step_count] == 19
    assert m[comm.straggler_wait] == pytest.approx(0.06)


def test_independent_jobs_are_not_ranks_of_one_run():
    m = metrics(a_rank(0, 0.1, backward=0.02), a_rank(1, 0.2, backward=0.04))
    with pytest.raises(Missing):
        m[comm.straggler_skew]


def test_restarted_rank_counts_once():
    first, second = lockstep(0.02, 0.08)
    again = replace(second, process=replace(second.process, started=5.0))
    assert len(metrics(first, second, again)[comm.own_work]) == 2


@pytest.mark.parametrize("alone", [a_rank(0, 0.1, world=1), a_rank(0, 0.1, world=8)])
def test_straggler_metrics_need_more_than_one_rank(alone):
    with pytest.raises(Missing):
        metrics(alone)[comm.straggler_skew]


def test_straggler_skew_is_missing_without_backward_times():
    with pytest.raises(Missing):
        metrics(a_rank(0, 0.1, backward=0.02), a_rank(1, 0.1))[comm.straggler_skew]


def exchanging(overlap=None, path=(), windows=1, state=None):
    """Return metrics of windows of two steps with eighty all-reduces, of which computing hides `overlap`."""
    window = Window(pid=1, start=1.0, steps=2, duration=0.2, cost=0.0, device="cuda", busy=0.1, kernels=9)
    exchange = Exchange(name="allreduce", group="0", calls=80, seconds=0.1, exposed=0.1)
    facts = [
        TraceFact(id=number, steps=2, seconds=0.2, overlap=overlap, exchanges=(exchange,)) for number in range(windows)
    ]
    copy = Operator(pid=1, window=0, device="cuda", name="aten::copy_", inputs=(), calls=1, total=0.1, path=path)
    tables = {"windows": (window,) * windows, "operators": (copy,), "traces": tuple(facts), "window_state": state}
    return metrics(rank(steps=steps(*[0.1] * 40), **tables))


def test_collectives_are_counted_per_step():
    assert exchanging()[comm.exposed_collective_calls] == 40


def test_collectives_of_several_windows_are_counted_per_step_of_all():
    assert exchanging(windows=3)[comm.exposed_collective_calls] == 40


@pytest.mark.parametrize("metric", [comm.exposed_collective, comm.exposed_collective_calls, comm.exposed_bandwidth])
def test_collectives_in_graphs_are_not_timed_where_cupti_misreports_them(metric):
    wrong = exchanging(state=WindowsFact(graph_times_wrong=True))
    with pytest.raises(Missing, match="CUPTI misreports"):
        wrong[metric]


@pytest.mark.parametrize(
    ("overlap", "path", "overlaps"),
    [
        (None, (), False),
        (comm.OVERLAPPED - 0.01, (), False),
        (comm.OVERLAPPED, (), True),
        (0.0, ("DistributedDataParallel.forward", "Linear"), True),
    ],
)
def test_reductions_overlap_backward_if_hidden_or_run_by_ddp(overlap, path, overlaps):
    assert exchanging(overlap, path)[comm.overlaps_backward] is overlaps
