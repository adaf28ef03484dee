"""A run folder becomes a profile: ranks in order, each with its workers, batches and latest facts."""

import contextlib

import pytest
from profiles import nvml_uuid, torch_uuid

from advisor.export.nodes import nodes
from advisor.runs.load import load
from profiler.errors import ProfilerError
from profiler.schema import (
    Batch,
    DeviceFact,
    Fact,
    FlagsFact,
    Gpu,
    GpuSample,
    HostSample,
    Kernel,
    LoaderFact,
    MemoryFact,
    MemorySample,
    Problem,
    Process,
    Run,
    ScalerFact,
    Sketch,
    Step,
    Window,
)
from profiler.store import Writer


def run(host="a", started_at=0.0):
    return Run(
        id=host,
        command=("train.py",),
        cwd="/",
        host=host,
        started_at=started_at,
        cores=2.0,
        cores_total=2,
        memory_total=2**33,
        platform="Linux",
        python="3.11",
        version="0.1.0",
    )


def process(pid, **fields):
    return Process(**{"pid": pid, "started": 0.0} | fields)


def worker(pid, parent, **fields):
    return process(pid, parent=parent, role="worker", worker_id=0, **fields)


def step(pid, index=0):
    return Step(pid=pid, index=index, start=float(index), duration=1.0)


def batch(pid, start=0.0):
    return Batch(pid=pid, loader=1, start=start, duration=0.5, cpu=0.5, collate=0.1, samples=8.0)


def fact(pid, kind, time=0.0, **body):
    return Fact(pid=pid, time=time, kind=kind, body=body)


def record(folder, *rows, host="a", runs=True):
    with contextlib.closing(Writer(folder, host)) as writer:
        if runs:
            writer.add(run(host))
        writer.add(*rows)
    return folder


def test_ranks_are_sorted_with_their_own_rows(tmp_path):
    rows = []
    for pid, rank in ((20, 1), (10, 0)):
        rows += [
            process(pid, rank=rank, world_size=2),
            step(pid),
            MemorySample(
                time=0.0, pid=pid, device=0, allocated=pid, allocated_peak=pid, reserved=pid, reserved_peak=pid
            ),
            Window(pid=pid, start=0.0, steps=3, duration=3.0, cost=0.1),
            Kernel(pid=pid, window=0, device="cpu", name="aten::mm", kind="matmul", calls=pid, total=1.0),
            Sketch(pid=pid, quantity="duration", zeros=0, bins={1: pid}),
        ]
    profile = load(record(tmp_path, *rows))
    assert [rank.process.rank for rank in profile.ranks] == [0, 1]
    for rank, pid in zip(profile.ranks, (10, 20), strict=True):
        for rows in (rank.steps, rank.memory_samples, rank.windows, rank.kernels, rank.sketches):
            assert [row.pid for row in rows] == [pid]


def test_workers_and_their_batches_belong_to_their_rank(tmp_path):
    rows = [
        process(10),
        process(20, rank=1),
        worker(11, parent=10),
        worker(21, parent=20),
        step(10),
        step(20),
        batch(11, start=3.0),
        batch(21),
        batch(10, start=1.0),
        Sketch(pid=11, quantity="batch", zeros=0, bins={1: 1}),
    ]
    first, second = load(record(tmp_path, *rows)).ranks
    assert [one.pid for one in first.workers] == [11]
    assert [one.pid for one in first.batches] == [10, 11], "by time"
    assert [one.pid for one in first.sketches] == [11]
    assert [one.pid for one in second.batches] == [21]


@pytest.mark.parametrize(
    "between",
    [[], [process(9, parent=10)], [process(9, parent=9)]],
    ids=["forkserver not recorded", "forkserver that imported torch", "process that is its own parent"],
)
def test_forkserver_workers_belong_to_ancestor_or_only_rank(tmp_path, between):
    (rank,) = load(record(tmp_path, process(10), step(10), *between, worker(11, parent=9), batch(11))).ranks
    assert [one.pid for one in rank.workers] == [11]
    assert [one.pid for one in rank.batches] == [11]


def test_orphan_workers_are_not_assigned_with_several_ranks(tmp_path):
    rows = [process(10), process(20), step(10), step(20), worker(11, parent=9), batch(11)]
    assert [rank.workers for rank in load(record(tmp_path, *rows)).ranks] == [(), ()]


@pytest.mark.parametrize(
    ("place", "worked_for"),
    [({"rank": 1, "world_size": 2}, 20), ({"rank": 1}, None), ({"rank": 2, "world_size": 3}, None)],
    ids=["rank set by the launcher", "spawned rank without a world size", "rank of another job"],
)
def test_workers_of_unseen_forkserver_are_assigned_by_rank_number(tmp_path, place, worked_for):
    ranks = [process(pid, rank=number, world_size=2) for number, pid in enumerate((10, 20))]
    rows = [*ranks, step(10), step(20), worker(11, parent=9, **place), batch(11)]
    profile = load(record(tmp_path, *rows))
    found = {rank.process.pid: [one.pid for one in rank.workers] for rank in profile.ranks}
    assert found == {10: [], 20: [11] if worked_for else []}
    (exported,) = nodes(tmp_path, profile)
    assert found == {rank.process.pid: [one.pid for one in rank.workers] for rank in exported.ranks}


def test_processes_without_steps_are_left_out(tmp_path):
    rows = [process(5), process(10, parent=5, rank=3), step(10), worker(11, parent=10)]
    assert [rank.process.pid for rank in load(record(tmp_path, *rows)).ranks] == [10]


def test_processes_without_rank_are_numbered_unless_restarted(tmp_path):
    """torch.multiprocessing.spawn sets no RANK."""
    processes = [process(pid, started=start, ended=end) for pid, start, end in ((1, 0, 9), (2, 1, 8), (3, 10, 20))]
    record(tmp_path, *processes, *(step(pid) for pid in (1, 2, 3)))

    ranks = load(tmp_path).ranks

    assert {rank.process.pid: rank.process.rank for rank in ranks} == {1: 0, 2: 1, 3: 0}


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("after", [(60.0, 5.0), (5.0, 60.0)])
def test_last_start_of_rank_comes_first_regardless_of_startup_time(tmp_path, world_size, after):
    for name, pid, at, started in (("rank0", 1, 1000.0, after[0]), ("rank0-2", 2, 1100.0, after[1])):
        rows = [process(pid, started=started, ended=started + 9, world_size=world_size), step(pid)]
        record(tmp_path, run("a", at), *rows, host=f"a-{name}", runs=False)

    assert [(rank.process.pid, rank.process.rank) for rank in load(tmp_path).ranks] == [(2, 0), (1, 0)]


def test_parent_without_steps_is_not_a_problem_if_children_train(tmp_path):
    steps = [Problem(time=1.0, pid=pid, source="steps", message="No optimizer step was seen.") for pid in (1, 2)]
    record(tmp_path / "trained", process(1), process(2, parent=1), step(2), *steps)
    record(tmp_path / "not", process(1), steps[0])

    assert [each.pid for each in load(tmp_path / "trained").problems] == [2]
    assert [each.pid for each in load(tmp_path / "not").problems] == [1]


def test_processes_without_steps_are_kept_if_none_has_steps(tmp_path):
    rows = [process(5), process(6, rank=1), worker(7, parent=6)]
    ranks = load(record(tmp_path, *rows)).ranks
    assert [rank.process.pid for rank in ranks] == [5, 6]
    assert [one.pid for one in ranks[1].workers] == [7]


def test_the_latest_fact_of_each_kind_and_id_counts(tmp_path):
    rows = [
        process(10),
        step(10),
        fact(10, "loader", 1.0, id=1, length=5),
        fact(10, "loader", 2.0, id=2, length=6),
        fact(10, "loader", 3.0, id=1, length=7),
        fact(10, "flags", 1.0, ddp=True),
        fact(10, "flags", 2.0, autocast=True),
        fact(10, "scaler", 1.0, steps=4),
        fact(10, "device", id=0, name="H200"),
        fact(10, "memory", id=0, parameters=8),
        fact(10, "of tomorrow", id=0),
        fact(99, "loader", id=3),
    ]
    (rank,) = load(record(tmp_path, *rows)).ranks
    assert sorted(rank.loaders, key=lambda loader: loader.id) == [
        LoaderFact(id=1, length=7),
        LoaderFact(id=2, length=6),
    ]
    assert rank.flags == FlagsFact(autocast=True)
    assert rank.scaler == ScalerFact(steps=4)
    assert rank.devices == (DeviceFact(id=0, name="H200"),)
    assert rank.memory_peaks == (MemoryFact(id=0, parameters=8),)
    assert (rank.models, rank.optimizers) == ((), ())


def test_nodes_are_combined_with_separate_gpus(tmp_path):
    for host, rank in (("b", 1), ("a", 0)):
        gpu = Gpu(index=4, uuid=f"GPU-{host}", name="H200", memory_total=2**37)
        rows = [process(10, rank=rank), step(10), gpu, GpuSample(time=0.0, gpu=4), HostSample(time=0.0)]
        record(tmp_path, *rows, host=host)
    profile = load(tmp_path)
    assert [run.host for run in profile.runs] == ["a", "b"]
    assert [rank.process.rank for rank in profile.ranks] == [0, 1]
    numbers = {gpu.uuid: gpu.index for gpu in profile.gpus}
    assert len(set(numbers.values())) == 2
    assert [sample.gpu for sample in profile.gpu_samples] == [numbers["GPU-a"], numbers["GPU-b"]]
    assert len(profile.host_samples) == 2


def test_gpus_of_nodes_with_different_visible_devices_stay_separate(tmp_path):
    """With CUDA_VISIBLE_DEVICES, the program on the first node sees only its last GPU."""
    for rank, visible in enumerate(([2], [0, 1])):
        gpus = [Gpu(index=n, uuid=f"GPU-{rank}{n}", name="H200", memory_total=2**37) for n in visible]
        rows = [process(10, rank=rank), step(10), *gpus, *(GpuSample(time=0.0, gpu=n) for n in visible)]
        record(tmp_path, *rows, host="ab"[rank])
    profile = load(tmp_path)
    assert [gpu.uuid for gpu in profile.gpus] == ["GPU-02", "GPU-10", "GPU-11"]
    assert [gpu.index for gpu in profile.gpus] == [sample.gpu for sample in profile.gpu_samples] == [0, 1, 2]


def test_the_gpus_of_one_node_keep_their_numbers(tmp_path):
    gpu = Gpu(index=4, uuid="GPU-a", name="H200", memory_total=2**37)
    profile = load(record(tmp_path, gpu, GpuSample(time=0.0, gpu=4)))
    assert (profile.gpus, [sample.gpu for sample in profile.gpu_samples]) == ((gpu,), [4])


def test_only_gpus_seen_by_torch_are_kept_if_models_differ(tmp_path):
    idle, trains = (
        Gpu(index=n, uuid=nvml_uuid(n), name=name, memory_total=2**37) for n, name in enumerate(("A100", "H100"))
    )
    samples = [GpuSample(time=0.0, gpu=n) for n in (0, 1)]
    rows = [process(10), step(10), idle, trains, *samples, fact(10, "device", id=0, name="H100", uuid=torch_uuid(1))]
    profile = load(record(tmp_path, *rows))
    assert (profile.gpus, [sample.gpu for sample in profile.gpu_samples]) == ((trains,), [1])


def test_unreadable_node_is_reported_as_a_problem(tmp_path):
    problem = Problem(time=1.0, source="nvml", message="no permission")
    record(tmp_path, process(10), step(10), problem)
    (tmp_path / "run-b.db").write_bytes(b"")
    profile = load(tmp_path)
    assert len(profile.ranks) == 1
    assert profile.problems[0] == problem
    assert "run-b.db" in profile.problems[1].message


def test_loading_fails_without_readable_node(tmp_path):
    with pytest.raises(ProfilerError, match="no recording"):
        load(tmp_path)
    (tmp_path / "run-b.db").write_bytes(b"")
    with pytest.raises(ProfilerError, match="empty"):
        load(tmp_path)


def test_recording_without_command_is_refused(tmp_path):
    with pytest.raises(ProfilerError, match="does not contain the command"):
        load(record(tmp_path, process(10), step(10), runs=False))
