"""Committed data is read back exactly, stays bounded, and survives kills, full disks and damage."""

import contextlib
import dataclasses
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path
from typing import Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiler.errors import ProfilerError
from profiler.quantile_sketch import EDGE
from profiler.schema import (
    BETWEEN,
    FACTS,
    PHASES,
    SCHEMA_VERSION,
    TAG_EPOCH_START,
    TAG_EVALUATION,
    Batch,
    DeviceFact,
    Fact,
    FlagsFact,
    Gpu,
    GpuSample,
    HostSample,
    Kernel,
    MemorySample,
    ModelFact,
    Operator,
    OptimizerFact,
    Place,
    Problem,
    Process,
    Run,
    Sketch,
    Stack,
    Step,
    Sync,
    Window,
)
from profiler.store import Tables, Writer, decode_fact, find, read, reader, with_columns
from profiler.store.merge import MERGES
from profiler.store.values import made_of, parse

SINGLES = {"runs": Run, "processes": Process, "gpus": Gpu, "sketches": Sketch, "stacks": Stack, "facts": Fact}
STREAMS = {
    "steps": Step,
    "batches": Batch,
    "gpu_samples": GpuSample,
    "host_samples": HostSample,
    "memory_samples": MemorySample,
    "windows": Window,
    "kernels": Kernel,
    "operators": Operator,
    "syncs": Sync,
    "problems": Problem,
}
RUN = Run(
    id="a",
    command=("train.py", "--lr", "3e-4"),
    cwd="/home/me",
    host="node",
    started_at=1.7e9,
    cores=4.0,
    cores_total=8,
    memory_total=2**34,
    platform="Linux",
    python="3.11",
    version="0.1.0",
)

slow_disk = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def step(index, pid=1, **fields):
    return Step(**{"pid": pid, "index": index, "start": index * 0.001, "duration": 0.001} | fields)


def written(folder, singles=(), streams=(), cls=Writer):
    with contextlib.closing(cls(folder, "node")) as writer:
        writer.add(*singles, *streams)
        assert writer.commit()
    return find(folder)[0]


@contextlib.contextmanager
def fresh():
    """Yield a new folder for each example."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


# ---- round trip ----

INTEGERS = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def values(hint):
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=4).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=4)
    if dataclasses.is_dataclass(hint):
        return rows(hint)
    return {
        int: INTEGERS,
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        str: st.text(),
        object: JSON,
        types.NoneType: st.none(),
    }[hint]


def rows(cls):
    return st.builds(cls, **{name: values(hint) for name, hint in get_type_hints(cls).items()})


@pytest.mark.parametrize("name", SINGLES)
@slow_disk
@given(data=st.data())
def test_single_rows_round_trip(name, data):
    row = data.draw(rows(SINGLES[name]))
    with fresh() as folder:
        (found,) = getattr(read(written(folder, singles=[row])), name)
    assert found == row
    assert_same_types(found, row)


def test_recording_without_operators_table_is_read_and_continued(tmp_path):
    path = written(tmp_path, streams=[Window(pid=1, start=0.0, steps=1, duration=1.0, cost=0.0, shapes=True)])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE operators")
        connection.execute("ALTER TABLE windows DROP COLUMN shapes")

    found = read(path)
    assert (found.operators, found.problems) == ((), ())
    assert [window.shapes for window in found.windows] == [False]

    row = Operator(pid=1, window=0, device="cpu", name="aten::mm", inputs=((2, 3), ()), calls=1, total=1.0)
    assert read(written(tmp_path, streams=[row])).operators == (row,)


@pytest.mark.parametrize("name", STREAMS)
@slow_disk
@given(data=st.data())
def test_appended_rows_round_trip_in_order(name, data):
    appended = data.draw(st.lists(rows(STREAMS[name]), max_size=5))
    with fresh() as folder:
        found = getattr(read(written(folder, streams=appended)), name)
    assert found == tuple(appended)
    for one, other in zip(found, appended, strict=True):
        assert_same_types(one, other)


def assert_same_types(one, other):
    assert [type(value) for value in dataclasses.astuple(one)] == [type(value) for value in dataclasses.astuple(other)]


def as_json(value):
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [as_json(each) for each in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("kind", FACTS)
@settings(slow_disk, max_examples=10)
@given(data=st.data())
def test_facts_round_trip_as_their_dataclass(kind, data):
    body = data.draw(rows(FACTS[kind]))
    fact = Fact(pid=1, time=0.5, kind=kind, body=as_json(body))
    with fresh() as folder:
        (found,) = read(written(folder, singles=[fact])).facts
    assert decode_fact(found) == body


def test_every_table_is_a_class_of_the_schema():
    hints = get_type_hints(Tables)
    assert {name: get_args(hint)[0] for name, hint in hints.items()} == SINGLES | STREAMS


def test_with_columns_matches_replacing_row_by_row():
    rows = [GpuSample(time=float(n), gpu=n, power=None if n else 1.0) for n in range(3)]

    assert with_columns(rows, gpu=[7, 8, 9]) == [dataclasses.replace(row, gpu=row.gpu + 7) for row in rows]
    assert [row.gpu for row in rows] == [0, 1, 2], "they are copies"
    assert with_columns([], gpu=[]) == []


def test_missing_columns_give_each_row_its_own_default():
    one, other = made_of(ModelFact, {"id": [1, 2]}, 2)

    assert [one, other] == [ModelFact(id=1), ModelFact(id=2)]
    assert one.dtypes is not other.dtypes


def test_a_later_row_of_the_same_key_replaces_the_first(tmp_path):
    with contextlib.closing(Writer(tmp_path, "node")) as writer:
        for id, length in ((1, 5), (2, 6), (1, 7)):
            writer.add(Fact(pid=3, time=0.0, kind="loader", body={"id": id, "length": length}))
            writer.add(Fact(pid=3, time=float(length), kind="flags", body={"threads": length}))
            writer.commit()
        writer.add(dataclasses.replace(RUN, outcome="completed"))
        writer.add(RUN)
    tables = read(writer.path)
    assert sorted((fact.kind, fact.body.get("length"), fact.body.get("threads")) for fact in tables.facts) == [
        ("flags", None, 7),
        ("loader", 6, None),
        ("loader", 7, None),
    ]
    assert tables.runs == (RUN,)


def test_an_interrupt_while_a_recording_is_read_is_not_lost(tmp_path, monkeypatch):
    path = written(tmp_path, streams=[step(0)])
    authorize = reader._only_reading

    def interrupted(*asked):
        signal.raise_signal(signal.SIGINT)
        return authorize(*asked)

    monkeypatch.setattr(reader, "_only_reading", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read(path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_non_utf8_arguments_can_be_stored(tmp_path):
    run = dataclasses.replace(RUN, cwd="/data/caf\udce9", command=("caf\udce9.py",))
    (found,) = read(written(tmp_path, singles=[run])).runs
    assert (found.cwd, found.command) == ("/data/caf\\udce9", run.command)


def test_driver_not_available_value_is_not_measured(tmp_path):
    sample = GpuSample(time=0.0, gpu=0, memory_used=1, process_memory=2**64 - 1, throttle=2**64 - 1)
    (found,) = read(written(tmp_path, streams=[sample])).gpu_samples
    assert found == GpuSample(time=0.0, gpu=0, memory_used=1)


# ---- facts of other versions, or damaged ----


def test_a_fact_keeps_what_fits_and_takes_defaults_for_the_rest():
    body = {
        "id": 5,
        "place": {"file": "train.py", "line": 31, "column": 4},
        "tensors": "many",
        "parameters": 1.5,
        "fused": 1,
        "lr": 3,
        "from_the_future": [],
    }
    assert decode_fact(Fact(pid=1, time=0.0, kind="optimizer", body=body)) == OptimizerFact(
        id=5, place=Place(file="train.py", line=31), lr=3.0
    )


@pytest.mark.parametrize("place", [{"file": "train.py"}, {"file": None, "line": 3}, "train.py:31", []])
def test_invalid_place_is_left_out(place):
    fact = Fact(pid=1, time=0.0, kind="optimizer", body={"id": 5, "place": place, "name": "Adam"})
    assert decode_fact(fact) == OptimizerFact(id=5, name="Adam")


@given(st.sampled_from(sorted(FACTS)), st.data())
def test_decoding_a_fact_never_raises(kind, data):
    names = st.sampled_from(sorted(get_type_hints(FACTS[kind]))) | st.text()
    body = data.draw(st.dictionaries(names, JSON | st.floats()))
    decoded = decode_fact(Fact(pid=1, time=0.0, kind=kind, body=body))
    assert decoded is None or decoded == decode_fact(Fact(pid=1, time=0.0, kind=kind, body=as_json(decoded)))


def test_invalid_numbers_are_not_measured():
    body = parse('{"id": 1, "lr": NaN, "name": ' + "9" * 400 + ', "capability": [8, 0, 1]}')
    assert decode_fact(Fact(pid=1, time=0.0, kind="optimizer", body=body)) == OptimizerFact(id=1)
    assert decode_fact(Fact(pid=1, time=0.0, kind="device", body=body)) == DeviceFact(id=1)
    assert decode_fact(Fact(pid=1, time=0.0, kind="optimizer", body={"id": 1, "lr": 10**400})) == OptimizerFact(id=1)


@pytest.mark.parametrize(("kind", "body"), [("loader", {}), ("loader", {"id": "x"}), ("of tomorrow", {"id": 1})])
def test_fact_without_known_kind_or_valid_id_is_none(kind, body):
    assert decode_fact(Fact(pid=1, time=0.0, kind=kind, body=body)) is None


def test_flags_need_no_id():
    assert decode_fact(Fact(pid=1, time=0.0, kind="flags", body={"ddp": True})) == FlagsFact(ddp=True)


# ---- bounded ----


class Small(Writer):
    LIMITS = dict.fromkeys(Writer.LIMITS, 16)
    PER_TABLE = 6


def weighted(rows, name):
    return sum(getattr(row, name) * row.count for row in rows if getattr(row, name) is not None)


@pytest.mark.parametrize("cls", MERGES)
def test_every_column_has_a_merge_policy(cls):
    assert set(MERGES[cls].policies) == {field.name for field in dataclasses.fields(cls)}


STEPS = st.builds(
    step,
    st.just(0),
    pid=st.sampled_from([1, 2]),
    duration=st.floats(1e-4, 10),
    tags=st.sampled_from([0, 0, 0, TAG_EPOCH_START, TAG_EVALUATION]),
    forward=st.none() | st.floats(0, 5),
    evaluation=st.none() | st.floats(0, 5),
    queue_depth=st.floats(0, 16),
)


@slow_disk
@given(steps=st.lists(STEPS, max_size=30), times=st.integers(1, 20), batch=st.integers(1, 90))
def test_merged_steps_keep_every_sum(steps, times, batch):
    steps = [dataclasses.replace(one, index=at, start=float(at)) for at, one in enumerate(steps * times)]
    with fresh() as folder:
        with contextlib.closing(Small(folder, "node")) as writer:
            for at in range(0, len(steps), batch):
                writer.add(*steps[at : at + batch])
                assert writer.commit()
        found = read(writer.path).steps
    for pid in (1, 2):
        for tagged in (False, True):
            before = [one for one in steps if (one.pid, one.tags != 0) == (pid, tagged)]
            after = [one for one in found if (one.pid, one.tags != 0) == (pid, tagged)]
            assert len(after) <= Small.LIMITS[Step]
            assert sum(one.count for one in after) == len(before)
            for name in ("duration", "forward", "evaluation", "queue_depth"):
                assert weighted(after, name) == pytest.approx(weighted(before, name))
            assert [one.start for one in after] == sorted(one.start for one in after)
            assert [one.start for one in after[:1]] == [one.start for one in before[:1]]
            assert {bit for one in after for bit in (1, 2, 4) if one.tags & bit} == {
                bit for one in before for bit in (1, 2, 4) if one.tags & bit
            }


def test_many_steps_stay_bounded_and_no_row_absorbs_the_start(tmp_path):
    with contextlib.closing(Small(tmp_path, "node")) as writer:
        for at in range(0, 20_000, 100):
            writer.add(*[step(index) for index in range(at, at + 100)])
            writer.commit()
    found = read(writer.path).steps
    assert len(found) <= 16
    assert sum(one.count for one in found) == 20_000
    assert max(one.count for one in found) <= 20_000 / 4  # no row absorbs the run's beginning
    assert writer.path.stat().st_size < 200_000


def test_a_day_of_millisecond_steps_takes_a_few_megabytes(tmp_path):
    """One rank with 8 loader workers and 2 GPUs; each row that is added stands for many merged rows."""
    day, rows = 86_400, 21_600
    share = dict.fromkeys((*PHASES, *BETWEEN, "fetch_host", "fetches_empty", "queue_depth", "host_launch"), 1 / 17000)
    measured = dict.fromkeys(("utilization", "power", "sm_clock", "temperature", "memory_clock"), 1 / 3)
    with contextlib.closing(Writer(tmp_path, "node")) as writer:
        for at in range(rows):
            time = at * day / rows
            count = 10 * day // rows
            tags = TAG_EPOCH_START if at % 4 == 0 else 0
            writer.add(step(at, start=time, count=1000 * day // rows, tags=tags, **share))
            writer.add(HostSample(time=time, count=count, cpu=1 / 3, cpu_workers=1 / 3, rss=2**40))
            writer.add(*[GpuSample(time=time, gpu=gpu, count=count, **measured) for gpu in range(2)])
            batch = Batch(pid=at % 8, loader=1, start=time, count=8000, duration=0.1, cpu=0.1, collate=0.1, samples=8.0)
            writer.add(batch)
            if at % 100 == 0:
                assert writer.commit()
        for quantity in ("duration", "batch", *PHASES):
            bins = dict.fromkeys(range(-EDGE, EDGE + 1), day * 1000)
            writer.add(Sketch(pid=1, quantity=quantity, zeros=0, bins=bins))
        assert writer.close()
    assert writer.path.stat().st_size < 24e6
    with contextlib.closing(sqlite3.connect(writer.path)) as connection:
        (longest,) = connection.execute("SELECT max(length(bins)) FROM sketches").fetchone()
    assert longest < 50_000
    tables = read(writer.path)
    assert sum(one.count for one in tables.steps) == 86_400_000
    assert len(tables.steps) <= 2 * Writer.LIMITS[Step]
    assert len(tables.host_samples) <= Writer.LIMITS[HostSample]
    assert len(tables.gpu_samples) <= 2 * Writer.LIMITS[GpuSample]
    assert sum(sample.count for sample in tables.gpu_samples) == 2 * 864_000


@pytest.mark.parametrize("full", [Step, Batch])
def test_steps_and_batches_are_merged_at_the_same_time(tmp_path, full):
    """Otherwise a file grows whenever both happen to be fullest at once."""
    limit = Small.LIMITS[full]
    with contextlib.closing(Small(tmp_path, "node")) as writer:
        for at in range(limit - 2):
            writer.add(step(at), _batch(at))
        assert writer.commit()
        writer.add(*[step(limit + more) if full is Step else _batch(limit + more) for more in range(3)])
        assert writer.commit()
    tables = read(writer.path)
    assert len(tables.steps) <= limit / 2
    assert len(tables.batches) <= limit / 2
    assert sum(one.count for one in (*tables.steps, *tables.batches)) == 2 * (limit - 2) + 3


def _batch(at):
    return Batch(pid=1, loader=1, start=float(at), duration=0.1, cpu=0.1, collate=0.1, samples=8.0)


def test_the_log_shrinks_again_after_a_large_commit(tmp_path):
    with contextlib.closing(Writer(tmp_path, "node")) as writer:
        log = writer.path.with_name(f"{writer.path.name}-wal")
        writer.add(Fact(pid=1, time=0.0, kind="model", body={"id": 1, "modules": ["x"] * (Writer.LOG // 4)}))
        writer.commit()
        largest = log.stat().st_size
        for index in range(2):
            writer.add(step(index))
            writer.commit()
        assert log.stat().st_size <= Writer.LOG < largest


def test_phases_of_merged_steps_still_sum_to_the_duration(tmp_path):
    whole = step(0, duration=1.0, forward=0.4, other=0.6)
    unmeasured = step(1, duration=1.0, other=1.0)
    for row in read(written(tmp_path, streams=[whole, unmeasured] * 20, cls=Small)).steps:
        measured = [getattr(row, phase) for phase in PHASES if getattr(row, phase) is not None]
        assert sum(measured) == pytest.approx(row.duration)
        assert all(getattr(row, name) is None for name in (*BETWEEN, "backward"))


def test_sample_columns_merge_by_their_own_policies(tmp_path):
    gpu = [
        GpuSample(time=float(at), gpu=at % 2, energy=10.0 * at, throttle=at % 2 * 4, power=float(at), memory_used=2**40)
        for at in range(64)
    ]
    memory = [
        MemorySample(
            time=float(at),
            pid=1,
            device=0,
            allocated=at,
            allocated_peak=100 - at,
            reserved=2**40,
            reserved_peak=2**40,
            retries=at // 8,
        )
        for at in range(64)
    ]
    host = [HostSample(time=float(at), cpu=1.0 if at % 2 else None, processes=at % 5) for at in range(64)]
    tables = read(written(tmp_path, streams=[*gpu, *memory, *host], cls=Small))
    for index in (0, 1):
        found = [sample for sample in tables.gpu_samples if sample.gpu == index]
        assert (found[-1].time, found[-1].energy) == (62.0 + index, 620.0 + 10 * index)
        assert {sample.throttle for sample in found} == {4 * index}
        assert {sample.memory_used for sample in found} == {2**40}
        assert weighted(found, "power") == sum(range(index, 64, 2))
        assert {sample.utilization for sample in found} == {None}
    assert tables.memory_samples[0].allocated_peak == 100
    assert tables.memory_samples[-1].retries == 7
    assert {type(sample.allocated) for sample in tables.memory_samples} == {int}
    assert {sample.cpu for sample in tables.host_samples} == {1.0}, "the mean of those that have it"
    assert max(sample.processes for sample in tables.host_samples) == 4
    for samples in (tables.gpu_samples, tables.memory_samples, tables.host_samples):
        assert sum(sample.count for sample in samples) == 64
    assert max(len(tables.gpu_samples) / 2, len(tables.memory_samples), len(tables.host_samples)) <= 16


@pytest.mark.parametrize("side_by_side", [False, True])
def test_short_lived_workers_keep_few_rows_each(tmp_path, side_by_side):
    pids = [pid for pid in range(200) for _ in range(12)]
    if side_by_side:
        pids = list(range(200)) * 12
    with contextlib.closing(Small(tmp_path, "node")) as writer:
        for at in range(0, len(pids), 40):
            writer.add(
                *[
                    Batch(pid=pid, loader=1, start=float(at), duration=0.5, cpu=0.5, collate=0.1, samples=8.0)
                    for pid in pids[at : at + 40]
                ]
            )
            writer.commit()
    found = read(writer.path).batches
    assert len(found) <= 2 * 200 + 40
    assert {batch.pid for batch in found} == set(range(200))
    assert sum(batch.count for batch in found) == 12 * 200


def test_kernels_are_kept_in_whole_windows_and_dropped_ones_reported(tmp_path):
    with contextlib.closing(Small(tmp_path, "node")) as writer:
        for window in range(4):
            writer.add(
                *[
                    Kernel(pid=1, window=window, device="cuda", name=f"k{at}", kind="copy", calls=1, total=0.1)
                    for at in range(10)
                ]
            )
            assert writer.commit()
    tables = read(writer.path)
    assert [kernel.window for kernel in tables.kernels] == [0] * 10 + [1] * 10
    (problem,) = tables.problems
    assert "kernels" in problem.message


def test_a_flood_of_problems_is_bounded(tmp_path):
    with contextlib.closing(Small(tmp_path, "node")) as writer:
        for at in range(100):
            writer.add(Problem(time=float(at), source="nvml", message="lost"))
            writer.commit()
    assert len(read(writer.path).problems) == 16


def test_limits_hold_when_a_file_is_reopened(tmp_path):
    for at in range(0, 60, 10):
        written(tmp_path, streams=[step(index) for index in range(at, at + 10)], cls=Small)
    found = read(find(tmp_path)[0]).steps
    assert len(found) <= 16
    assert sum(one.count for one in found) == 60


# ---- commits, crashes, full disks ----


def test_rows_become_visible_at_commit(tmp_path):
    writer = Writer(tmp_path, "node")
    writer.add(RUN)
    writer.add(step(0))
    writer.set_cursor("ring-1", 64)
    assert read(writer.path) == Tables()
    assert writer.cursor("ring-1") == 64
    assert writer.commit()
    assert read(writer.path) == Tables(runs=(RUN,), steps=(step(0),))
    writer.close()
    with contextlib.closing(Writer(tmp_path, "node")) as again:
        assert (again.cursor("ring-1"), again.cursor("ring-2")) == (64, 0)


def test_a_source_that_is_gone_leaves_no_cursor(tmp_path):
    """New workers every epoch add up."""
    with contextlib.closing(Writer(tmp_path, "node")) as writer:
        for worker in range(20):
            writer.set_cursor(f"ring {worker}", 64)
            writer.commit()
            writer.set_cursor(f"ring {worker}", None)
            assert writer.cursor(f"ring {worker}") == 0
        writer.commit()
        assert writer.cursor("ring 3") == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "run-node.db")) as connection:
        assert connection.execute("SELECT count(*) FROM cursors").fetchone() == (0,)


KILLED = """
import itertools, sys
from pathlib import Path
from profiler.schema import Batch, Step
from profiler.store import Writer

class Small(Writer):
    LIMITS = dict.fromkeys(Writer.LIMITS, 500)

writer = Small(Path(sys.argv[1]), "node")
for turn in itertools.count(1):
    start = float(turn)
    writer.add(*[Step(pid=1, index=turn, start=start, duration=0.5)] * 50)
    writer.add(*[Batch(pid=1, loader=1, start=start, duration=0.5, cpu=0.1, collate=0.1, samples=8.0)] * 50)
    writer.set_cursor("ring", turn * 50)
    writer.commit()
    print(turn, flush=True)
"""


@contextlib.contextmanager
def recorder(folder):
    """Yield a writer in its own process, which can be killed at any moment."""
    with subprocess.Popen([sys.executable, "-c", KILLED, folder], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("turns", [1, 7, 60])
@pytest.mark.process
def test_killed_writer_loses_no_committed_rows(tmp_path, turns):
    with recorder(tmp_path) as process:
        for _ in range(turns):
            committed = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
    tables = read(tmp_path / "run-node.db")
    steps = sum(one.count for one in tables.steps)
    assert steps >= committed * 50
    assert sum(batch.count for batch in tables.batches) == steps
    assert tables.problems == ()
    with contextlib.closing(Writer(tmp_path, "node")) as writer:
        assert writer.cursor("ring") == steps
        writer.add(step(0))
    assert sum(one.count for one in read(writer.path).steps) == steps + 1


@pytest.mark.process
def test_concurrent_reader_sees_only_whole_commits(tmp_path):
    with recorder(tmp_path) as process:
        process.stdout.readline()
        seen = []
        for _ in range(20):
            tables = read(tmp_path / "run-node.db")
            steps = sum(one.count for one in tables.steps)
            assert steps == sum(batch.count for batch in tables.batches)
            assert steps % 50 == 0
            seen.append(steps)
            process.stdout.readline()
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]


@contextlib.contextmanager
def full_disk(limit):
    """Limit the size of every file to `limit` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Impatient(Writer):
    WAITING = 300


def test_full_disk_is_waited_out_and_reported_once(tmp_path):
    writer = Impatient(tmp_path, "node")
    writer.add(step(0))
    assert writer.commit()
    with full_disk(1):
        for at in range(3):
            writer.add(*[step(index) for index in range(1 + at * 200, 201 + at * 200)])
            writer.set_cursor("ring", at)
            assert not writer.commit()
    assert [one.index for one in read(writer.path).steps] == [0]
    assert writer.commit()
    assert writer.close()
    tables = read(writer.path)
    assert [one.index for one in tables.steps] == [0, *range(301, 601)]
    (problem,) = tables.problems
    assert problem.code == "lost"
    assert "300" in problem.message
    assert problem.time == pytest.approx(0.6)


def test_merging_stays_correct_after_a_failed_commit(tmp_path):
    writer = Small(tmp_path, "node")
    for at in range(0, 400, 10):
        writer.add(*[step(index) for index in range(at, at + 10)])
        with full_disk(1) if at % 30 == 0 else contextlib.nullcontext():
            writer.commit()
    assert writer.close()
    found = read(writer.path).steps
    assert sum(one.count for one in found) == 400
    assert len(found) <= 16


def test_folder_that_cannot_be_created_gives_message_and_remedy(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ProfilerError, match="cannot be written") as caught:
        Writer(tmp_path / "file" / "run", "node")
    assert "--out" in caught.value.remedy


def test_no_space_for_new_file_gives_message_and_remedy(tmp_path):
    with full_disk(1), pytest.raises(ProfilerError, match="cannot be written") as caught:
        Writer(tmp_path, "node")
    assert "Free some disk space" in caught.value.remedy


def test_only_the_owner_may_look_into_a_run(tmp_path):
    writer = Writer(tmp_path / "run", "node")
    writer.add(step(0))
    writer.commit()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").iterdir()}
    writer.close()
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert "run-node.db" in modes
    assert set(modes.values()) == {0o600}


def test_a_closed_run_is_one_file(tmp_path):
    written(tmp_path, singles=[RUN])
    assert [path.name for path in tmp_path.iterdir()] == ["run-node.db"]


def test_host_name_cannot_escape_the_folder(tmp_path):
    with contextlib.closing(Writer(tmp_path, "../x y")) as writer:
        assert writer.path == tmp_path / "run-.._x_y.db"


# ---- reading other recorders' files ----


@contextlib.contextmanager
def nobody():
    """Become an unprivileged user for a while: root can write to every folder."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public(tmp_path_factory):
    """Yield a folder below which a test may remove its own permissions."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        os.chmod(folder, 0o755)


def protect(folder):
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)


def test_a_read_only_folder_can_be_read(public):
    path = written(public, streams=[step(0)])
    protect(public)
    with nobody():
        assert read(path).steps == (step(0),)


@pytest.mark.parametrize("left", [("-wal", "-shm"), ("-wal",)])
def test_a_killed_run_in_a_read_only_folder_can_be_read_to_its_end(public, tmp_path, left):
    writer = Writer(tmp_path, "node")
    writer.add(step(0))
    writer.commit()
    for suffix in ("", *left):
        name = f"{writer.path.name}{suffix}"
        (public / name).write_bytes((tmp_path / name).read_bytes())
    writer.close()
    protect(public)
    with nobody():
        assert read(public / writer.path.name).steps == (step(0),)


def test_a_run_that_was_not_closed_can_be_read_without_its_log(public, tmp_path):
    writer = Writer(tmp_path, "node")
    writer.add(step(0))
    writer.commit()
    with contextlib.closing(sqlite3.connect(writer.path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (public / writer.path.name).write_bytes(writer.path.read_bytes())
    writer.close()
    protect(public)
    with nobody():
        assert read(public / writer.path.name).steps == (step(0),)


def altered(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def test_a_newer_schema_is_refused_with_a_remedy(tmp_path):
    altered(written(tmp_path), f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    for refused in (lambda: read(find(tmp_path)[0]), lambda: Writer(tmp_path, "node")):
        with pytest.raises(ProfilerError, match=f"schema {SCHEMA_VERSION + 1}") as caught:
            refused()
        assert "--upgrade" in caught.value.remedy


def test_unknown_columns_are_ignored_and_missing_ones_take_defaults(tmp_path):
    path = altered(
        written(tmp_path, singles=[RUN], streams=[step(0, forward=0.1, tags=1)]),
        "ALTER TABLE steps ADD COLUMN color TEXT DEFAULT 'red'",
        "CREATE TABLE steps2 AS SELECT * FROM steps",
        "DROP TABLE gpus",
        "ALTER TABLE steps RENAME COLUMN forward TO onward",
    )
    tables = read(path)
    assert tables.steps == (step(0, tags=1),)
    assert (tables.gpus, tables.problems) == ((), ())
    with contextlib.closing(Writer(tmp_path, "node")) as writer:
        writer.add(step(1, forward=0.2))
    assert read(path).steps == (step(0, tags=1), step(1, forward=0.2))


def test_value_of_wrong_type_takes_default_or_drops_its_row(tmp_path):
    path = altered(
        written(tmp_path, streams=[step(0), step(1), step(2)]),
        "UPDATE steps SET forward = 'x', tags = NULL WHERE \"index\" = 0",
        "UPDATE steps SET duration = 'long' WHERE \"index\" = 1",
    )
    tables = read(path)
    assert tables.steps == (step(0), step(2))
    (problem,) = tables.problems
    assert problem.code == "unfit"
    assert "3" in problem.message


def test_infinity_is_treated_as_missing(tmp_path):
    path = altered(
        written(tmp_path, [Fact(pid=1, time=0.0, kind="optimizer", body={"id": 1})], [step(0), step(1), step(2)]),
        'UPDATE steps SET forward = 9e999 WHERE "index" = 0',
        'UPDATE steps SET duration = -9e999 WHERE "index" = 1',
        "UPDATE facts SET body = '{\"lr\": Infinity}'",
    )
    tables = read(path)
    assert tables.steps == (step(0), step(2))
    assert [problem.code for problem in tables.problems] == ["unfit"]
    assert tables.facts[0].body == {"lr": None}


def test_invalid_json_drops_only_its_row(tmp_path):
    sketches = [Sketch(pid=pid, quantity="duration", zeros=0, bins={1: 2}) for pid in range(5)]
    path = altered(
        written(tmp_path, singles=sketches),
        "UPDATE sketches SET bins = '{\"x\": 1}' WHERE pid = 0",
        f"UPDATE sketches SET bins = '{'[' * 100_000}' WHERE pid = 1",
        "UPDATE sketches SET bins = x'ff00' WHERE pid = 2",
        "UPDATE sketches SET bins = CAST(x'7bff7d' AS TEXT) WHERE pid = 3",
    )
    assert read(path).sketches == (sketches[4],)


def test_view_in_place_of_a_table_is_ignored(tmp_path):
    endless = "WITH RECURSIVE n(pid) AS (SELECT 1 UNION ALL SELECT pid FROM n) SELECT * FROM n"
    path = altered(written(tmp_path), "DROP TABLE kernels", f"CREATE VIEW kernels AS {endless}")
    assert read(path).kernels == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "empty"), (b"train.py\n" * 99, "damaged"), (b"SQLite format 3\0" + b"\0" * 99, "damaged")],
)
def test_file_that_is_not_a_recording_is_reported(tmp_path, content, message):
    path = tmp_path / "run-node.db"
    path.write_bytes(content)
    with pytest.raises(ProfilerError, match=message):
        read(path)


def test_foreign_database_is_reported_and_left_unchanged(tmp_path):
    path = altered(tmp_path / "run-node.db", "CREATE TABLE steps (pid INTEGER)")
    content = path.read_bytes()
    for refused in (lambda: read(path), lambda: Writer(tmp_path, "node")):
        with pytest.raises(ProfilerError, match="not a profile-train recording"):
            refused()
    assert path.read_bytes() == content


def test_database_without_tables_is_reported_as_empty(tmp_path):
    altered(tmp_path / "run-node.db", "PRAGMA journal_mode = WAL", "VACUUM")
    with pytest.raises(ProfilerError, match="empty"):
        read(tmp_path / "run-node.db")


def test_missing_file_or_folder_is_reported(tmp_path):
    for missing in (lambda: read(tmp_path / "run-node.db"), lambda: read(tmp_path)):
        with pytest.raises(ProfilerError):
            missing()
    with pytest.raises(ProfilerError, match="no folder"):
        find(tmp_path / "nowhere")
    with pytest.raises(ProfilerError, match="no recording"):
        find(tmp_path)


def test_every_node_is_found(tmp_path):
    for host in ("b", "a"):
        Writer(tmp_path, host).close()
    (tmp_path / "run-c.db").mkdir()
    assert [path.name for path in find(tmp_path)] == ["run-a.db", "run-b.db"]


# ---- damage ----


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return a recording of about sixty pages, with rows in every kind of table."""
    path = written(
        tmp_path_factory.mktemp("recorded"),
        singles=[RUN, *(Process(pid=pid, started=0.0) for pid in range(20))],
        streams=[
            *(step(index) for index in range(3000)),
            *(Problem(time=0.0, source="test", message="x" * 500) for _ in range(50)),
        ],
    )
    return path.read_bytes()


def salvaged(path):
    """Return what can be read, or None; anything but a ProfilerError with a remedy fails the test."""
    try:
        return read(path)
    except ProfilerError as error:
        raised = error
    assert str(path) in raised.message
    assert raised.remedy
    return None


def test_truncated_file_is_salvaged_or_reported_as_damaged(tmp_path, recorded):
    path = tmp_path / "run-node.db"
    kept = []
    for length in [1, 15, 16, 99, 100, 512, *range(4096, len(recorded), 4096), *range(5000, len(recorded), 7919)]:
        path.write_bytes(recorded[:length])
        tables = salvaged(path)
        if tables is not None:
            assert "damaged" in str(tables.problems)
            if length % 4096 == 0:
                assert set(tables.steps) <= {step(index) for index in range(3000)}
            kept.append(len(tables.steps))
    assert max(kept) > 1000


def test_file_with_flipped_bytes_is_salvaged_or_reported(tmp_path, recorded):
    path = tmp_path / "run-node.db"
    kept = []

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, len(recorded) - 1), st.integers(1, 255)), min_size=1, max_size=20))
    def flip(flips):
        content = bytearray(recorded)
        for at, bits in flips:
            content[at] ^= bits
        path.write_bytes(content)
        tables = salvaged(path)
        kept.append(0 if tables is None else len(tables.steps))
        with contextlib.suppress(ProfilerError), contextlib.closing(Writer(tmp_path, "node")) as writer:
            writer.add(step(0))

    flip()
    assert max(kept) > 1000


def test_torn_page_loses_only_its_rows(tmp_path, recorded):
    path = tmp_path / "run-node.db"
    found = []
    for page in range(1, len(recorded) // 4096):
        content = bytearray(recorded)
        content[page * 4096 : page * 4096 + 64] = bytes(64)
        path.write_bytes(content)
        tables = salvaged(path)
        if tables is None:
            continue
        assert "damaged" in str(tables.problems)
        found.append(len(tables.steps))
    assert len(found) >= len(recorded) // 4096 - 3, "but for the three pages of the schema"
    assert sorted(found)[1] > 2800, "but for the root page of the steps"


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_damaged_log_loses_only_the_newest_rows(tmp_path, suffix):
    writer = Writer(tmp_path / "live", "node")
    for index in range(50):
        writer.add(step(index))
        writer.commit()
    names = [f"{writer.path.name}{end}" for end in ("", "-wal", "-shm")]
    contents = {name: (tmp_path / "live" / name).read_bytes() for name in names}
    writer.close()
    torn = names[0] + suffix
    kept = []
    for cut in range(0, len(contents[torn]), len(contents[torn]) // 9):
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content[:cut] + bytes(64) + content[cut + 64 :] if name == torn else content)
        tables = salvaged(tmp_path / names[0])
        if tables is not None:
            assert [one.index for one in tables.steps] == list(range(len(tables.steps)))
            kept.append(len(tables.steps))
    assert max(kept) > 25


@pytest.mark.process
def test_reading_does_not_release_locks_of_a_writer(tmp_path):
    writer = Writer(tmp_path, "node")
    writer.add(step(0))
    writer.commit()
    read(writer.path)
    other = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1], timeout=0); "
        "connection.execute('PRAGMA journal_mode = DELETE')"
    )
    ended = subprocess.run([sys.executable, "-c", other, writer.path], capture_output=True, text=True)
    writer.close()
    assert "locked" in ended.stderr


def test_two_writers_do_not_corrupt_each_other(tmp_path):
    def write(pid):
        with contextlib.closing(Writer(tmp_path, "node")) as writer:
            for index in range(20):
                writer.add(step(index, pid=pid))
                assert writer.commit()

    threads = [threading.Thread(target=write, args=(pid,)) for pid in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read(find(tmp_path)[0]).steps
    assert [sorted(one.index for one in found if one.pid == pid) for pid in (1, 2)] == [list(range(20))] * 2
