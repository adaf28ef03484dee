"""Recordings of one job from several nodes: their clocks, their machines, and which are missing."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from profiles import RUN

from advisor.runs.clocks import Clock, Reference
from advisor.runs.nodes import clocks, ended, host_samples, in_order, numbered, remarks
from profiler.schema import Gpu, GpuSample, HostSample, Process, Step
from profiler.store import Tables


def lockstep(clock=lambda time: time, *, pid=1, number=200, noise=0.0005, seed=0, scatter=0.0):
    """Return updates that end every 0.1 s, within `noise` of one another on all ranks, in the time of `clock`."""
    chance, ends = random.Random(seed), []
    for step in range(number + 1):
        ends.append(clock(5.0 + 0.1 * step + chance.uniform(-noise, noise) + chance.uniform(0, scatter)))
    return tuple(
        Step(pid=pid, index=index, start=begin, duration=end - begin, optimizer=0.001)
        for index, (begin, end) in enumerate(pairwise(ends))
    )


def node(rank=0, *, world=2, host="a", steps=(), pid=1, **tables):
    process = Process(pid=pid, rank=rank, world_size=world, started=0.0)
    run = replace(RUN, host=host, outcome=tables.pop("outcome", "completed"), started_at=tables.pop("started_at", 0.0))
    return Tables(runs=(run,), processes=(process,), steps=steps, **tables)


def test_clock_offset_is_found_from_steps_alone():
    clock = Reference(lockstep(seed=1)).clock_of(lockstep(lambda time: time + 3.0, seed=2), hosts=0.0)

    assert clock.offset == pytest.approx(3.0, abs=0.0005)
    assert clock.drift == 0.0
    assert clock.residual < 0.001
    assert clock(13.0) == pytest.approx(10.0, abs=0.0005)


def test_a_drift_is_found_where_there_is_one():
    """A clock that runs one part in 5,000 fast is 4 ms off after these 20 s."""
    clock = Reference(lockstep(seed=1)).clock_of(lockstep(lambda time: 1.0002 * time + 3.0, seed=2), hosts=0.0)

    assert clock.drift == pytest.approx(0.0002, rel=0.2)
    assert clock.residual < 0.001
    for time in (5.0, 15.0, 25.0):
        assert clock(1.0002 * time + 3.0) == pytest.approx(time, abs=0.001)


def test_outlier_steps_do_not_affect_offset():
    steps = list(lockstep(lambda time: time + 3.0))
    for index in range(0, 200, 5):
        steps[index] = replace(steps[index], start=steps[index].start + 0.08)

    assert Reference(lockstep(seed=1)).clock_of(steps, hosts=0.0).offset == pytest.approx(3.0, abs=0.001)


@pytest.mark.parametrize(
    "steps", [(), lockstep(number=4), lockstep(scatter=0.5, seed=3)], ids=["none", "few", "not in lockstep"]
)
def test_host_clocks_are_used_without_shared_steps(steps):
    assert Reference(lockstep()).clock_of(steps, hosts=7.0) == Clock(7.0)


@pytest.mark.parametrize(("host", "said"), [("a", 0), ("b", 1)])
def test_ranks_not_in_lockstep_keep_host_clocks(host, said):
    nodes = [node(0, steps=lockstep(seed=1)), node(1, host=host, steps=lockstep(seed=2, scatter=1.0))]

    assert len(remarks(nodes, clocks(nodes))) == said


def test_remark_states_difference_between_host_clocks():
    """By the hosts' clocks, the second began 10 s later; the steps show that its clock is 3 s fast."""
    first = node(0, steps=lockstep(seed=1), started_at=1000.0)
    second = node(1, steps=lockstep(lambda time: time - 7.0, seed=2), started_at=1010.0)
    compared = clocks([first, second])

    assert compared[0] == Clock()
    assert compared[1].offset == pytest.approx(-7.0, abs=0.001)
    (remark,) = remarks([first, second], compared)
    assert " 3 s" in remark.message, "and to what the steps agree"


def test_no_remark_if_clocks_agree():
    nodes = [node(rank, steps=lockstep(seed=rank)) for rank in (0, 1)]
    assert remarks(nodes, clocks(nodes)) == []


def test_missing_ranks_are_named():
    nodes = [node(rank, world=8, steps=lockstep(seed=rank)) for rank in (0, 1, 5)]
    (remark,) = remarks(nodes, clocks(nodes))
    assert "2-4, 6-7" in remark.message


def test_absurd_world_size_is_capped(monkeypatch):
    monkeypatch.setattr("advisor.runs.nodes.MOST_RANKS", 8)
    nodes = [node(rank, world=64, steps=lockstep(seed=rank)) for rank in (0, 1, 5)]
    (remark,) = remarks(nodes, clocks(nodes))
    assert "2-4, 6-7" in remark.message


def test_unfinished_recording_is_reported():
    nodes = [node(0, steps=lockstep()), node(1, steps=lockstep(), outcome="running")]
    (remark,) = remarks(nodes, clocks(nodes))
    assert "(ranks: 1)" in remark.message


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["completed", "completed"], "completed"),
        (["completed", "failed"], "failed"),
        (["failed", "completed", "killed"], "killed"),
        (["running", "completed"], "running"),
    ],
)
def test_outcome_of_job_is_that_of_its_worst_rank(outcomes, expected):
    nodes = [node(rank, outcome=outcome) for rank, outcome in enumerate(outcomes)]

    assert ended(nodes).outcome == expected


def test_outcome_of_earlier_start_does_not_count():
    first = [node(0, outcome="failed"), node(1, outcome="killed")]
    again = [node(0, started_at=60.0), node(1, started_at=60.0)]

    assert ended([*first, *again]).outcome == "completed"


def test_no_outcome_without_run():
    assert ended([Tables()]) is None


def test_the_node_of_the_lowest_rank_comes_first():
    nodes = in_order([node(1, host="a", steps=lockstep()), node(0, host="b", steps=lockstep())])
    assert [each.runs[0].host for each in nodes] == ["b", "a"]


def test_recorders_of_one_machine_count_as_one():
    """Each rank has a recorder: all see the same GPU, and each sees its own processes."""
    samples = [tuple(HostSample(time=0.1 * n + late, cpu=1.0, machine_cpu=3.0) for n in range(4)) for late in (0, 0.04)]
    gpu, seen = Gpu(index=0, uuid="GPU-1", name="H100", memory_total=1), GpuSample(time=0.0, gpu=0)
    nodes = numbered([node(n, host_samples=samples[n], gpus=(gpu,), gpu_samples=(seen,)) for n in (0, 1)])

    assert {process.node_rank for each in nodes for process in each.processes} == {0}
    assert [sample.cpu for sample in host_samples(nodes)] == [2.0] * 4
    assert {sample.machine_cpu for sample in host_samples(nodes)} == {3.0}
    assert [len(each.gpus) for each in nodes] == [len(each.gpu_samples) for each in nodes] == [1, 0]


def test_machines_without_node_rank_are_distinguished_by_name():
    nodes = numbered([node(0, host="a"), node(1, host="b")])
    assert [process.node_rank for each in nodes for process in each.processes] == [0, 1]
