import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiler.agent import ring
from profiler.agent.event_writer import EventWriter, clock
from profiler.recorder import drain as module
from profiler.recorder.drain import MOST_LINE, Drain, EventSource
from profiler.schema import PHASES, TAG_FIRST, Batch, Fact, MemorySample, Problem, Process, Run, Step
from profiler.store import Tables, Writer, find, read

MAIN = 0
MS = 1_000_000
ALLOCATOR = {
    "device": 0,
    "allocated": 1,
    "allocated_peak": 2,
    "reserved": 3,
    "reserved_peak": 4,
    "retries": 5,
    "ooms": 6,
}


class Program:
    """What an agent writes, through a real event writer in this process. Its events have their own clock, in ms."""

    def __init__(self, folder):
        self.folder = folder
        self.origin = clock()
        self.event_writer = EventWriter(str(folder), worker=True)
        (self.ring,) = folder.glob("*.ring")
        self.facts = self.ring.with_suffix(".facts")
        self.now = 0

    def write(self, kind, ms, *values):
        begin, self.now = self.now, self.now + ms
        # all in one thread, so in one lane
        self.event_writer.write(MAIN, kind, self.origin + begin * MS, self.origin + self.now * MS, *values)

    def span(self, kind, begin, *values):
        """Write an event that lasts from this ms until now."""
        self.event_writer.write(MAIN, kind, self.origin + begin * MS, self.origin + self.now * MS, *values)

    def step(self, loader=1):
        """Write the events of a step of 10 ms."""
        self.write(ring.FETCH, 1, loader, -1)
        self.write(ring.FORWARD, 2, 1, 1, 1)
        self.write(ring.BACKWARD, 4)
        self.write(ring.OPTIMIZER, 3, 1)

    def evaluate(self, loader=2):
        self.write(ring.FETCH, 1, loader, -1)
        self.write(ring.FORWARD, 2, 1, 0, 1)
        self.write(ring.FETCH, 1, loader, -1, 1)

    def say(self, *lines):
        with self.facts.open("ab") as file:
            file.write(b"".join(lines))

    def source(self, **how):
        return EventSource(self.ring, self.origin, **how)


@pytest.fixture
def program(tmp_path):
    made = Program(tmp_path)
    yield made
    made.event_writer.publish()


def line(kind, **body):
    return json.dumps({"kind": kind, "t": clock(), **body}).encode() + b"\n"


def of(cls, rows):
    return [row for row in rows if isinstance(row, cls)]


# ---- rows ----


def test_steps_are_returned_as_they_end(program):
    source = program.source()
    assert source.rows() == []
    program.step()
    assert of(Step, source.rows()) == []
    program.step()
    program.step()
    first, second = source.rows()
    assert (first.pid, first.index, first.tags) == (os.getpid(), 0, TAG_FIRST)
    assert (second.index, second.start, second.duration) == (1, pytest.approx(0.010), pytest.approx(0.010))
    (last,) = of(Step, source.rows(final=True))
    assert last.index == 2
    assert source.process.ended == pytest.approx(0.030)


@pytest.mark.parametrize("device", ["xpu:0", "mps:0", "hpu:0", "xla:0"])
def test_phases_are_unknown_on_accelerators_without_marks(program, device):
    """The host's times are launch times."""
    source = program.source()
    program.say(line("model", id=1, name="Net", devices={device: 10, "cpu": 1}))
    for _ in range(3):
        program.step()
    step = of(Step, source.rows())[-1]
    assert step.duration == pytest.approx(0.010)
    assert {name: getattr(step, name) for name in PHASES} == dict.fromkeys(PHASES)


def test_phases_are_unknown_once_gpu_marks_are_abandoned(program):
    source = program.source()
    program.say(line("problem", source="cuda_events", message="SeveralGpus: the model lies on cuda:0, cuda:1"))
    for _ in range(3):
        program.step()
    rows = source.rows()
    assert {name: getattr(of(Step, rows)[-1], name) for name in PHASES} == dict.fromkeys(PHASES)
    assert [problem.source for problem in of(Problem, rows)] == ["cuda_events"]


def test_phases_of_cpu_model_are_host_times(program):
    source = program.source()
    program.say(line("model", id=1, name="Net", devices={"cpu": 1, "meta": 1}))
    for _ in range(3):
        program.step()
    assert of(Step, source.rows())[-1].forward == pytest.approx(0.002)


def test_each_batch_is_its_own_row(program):
    source = program.source()
    program.now = 7
    program.write(ring.BATCH, 20, 3, 5 * MS, 2 * MS, 32, 64)
    program.write(ring.BATCH, 20, 3, 5 * MS, 2 * MS, 32, -1)
    first, second = of(Batch, source.rows())
    assert (first.pid, first.loader, first.samples, first.files) == (os.getpid(), 3, 32, 64)
    assert (first.start, first.duration, first.cpu, first.collate) == pytest.approx((0.007, 0.020, 0.005, 0.002))
    assert second.files is None
    assert source.sketches["batch"].count == 2


def loaders(rows):
    return [batch.loader for batch in of(Batch, rows)]


def test_batch_made_in_training_process_gets_loader_of_its_fetch(program):
    """The batch does not name its loader; the surrounding fetch is written after it, and may be read later."""
    source = program.source()
    program.step()
    program.now += 1
    program.write(ring.BATCH, 3, 0, 0, 0, 4, -1)
    program.write(ring.GC, 1, 0, 2)
    assert loaders(source.rows()) == []
    program.span(ring.FETCH, program.now - 5, 7, -1)
    (batch,) = of(Batch, source.rows())
    assert (batch.loader, batch.duration, batch.samples) == (7, pytest.approx(0.003), 4)
    assert source.sketches["batch"].count == 1


def test_a_loader_that_reads_from_another_has_batches_of_its_own(program):
    source = program.source()
    for _ in range(2):
        begin = program.now
        program.now += 1
        program.write(ring.BATCH, 3, 0, 0, 0, 4, -1)
        program.span(ring.FETCH, begin + 1, 2, -1)
        program.now += 1
        program.span(ring.BATCH, begin, 0, 0, 0, 8, -1)
        program.span(ring.FETCH, begin, 1, -1)
    assert loaders(source.rows()) == [2, 1, 2, 1]


def test_batch_without_a_fetch_has_no_loader(program):
    """For example, another thread of the program made it, or the program was killed before the fetch ended."""
    source = program.source()
    program.write(ring.BATCH, 3, 0, 0, 0, 4, -1)
    program.step()
    assert loaders(source.rows()) == [0]
    program.write(ring.BATCH, 3, 0, 0, 0, 4, -1)
    assert loaders(source.rows()) == []
    assert loaders(source.rows(final=True)) == [0]


def test_worker_batches_without_a_loader_do_not_wait_for_a_fetch(program):
    """The worker was spawned."""
    source = program.source()
    program.event_writer.fact("process", {"role": "worker", "worker_id": 0})
    program.write(ring.BATCH, 3, 0, 0, 0, 4, -1)
    assert loaders(source.rows()) == [0]


class Loader:
    """A DataLoader that starts new workers every epoch; each worker makes one batch of 20 ms."""

    def __init__(self, folder):
        self.folder = folder
        self.origin = clock()
        self.pid = 1000
        self.drain = Drain(folder, self.origin, lambda name: 0)

    def epoch(self, workers, keep):
        event_writers = []
        for number in range(workers):
            event_writer = EventWriter(str(self.folder), worker=True)
            event_writer.fact("process", {"role": "worker", "worker_id": number, "parent": 7})
            event_writer.fact("flags", {"threads": 1})
            event_writer.write(MAIN, ring.BATCH, self.origin, self.origin + 20 * MS, 3, 0, 0, 1, 0)
            event_writer.publish()
            event_writers.append(event_writer)
            (path,) = [path for path in self.folder.glob("*.ring") if path.name not in self.named()]
            self.pid += 1
            with path.open("r+b") as file:  # this process writes all rings
                file.seek(16)
                file.write(self.pid.to_bytes(4, "little"))
            self.drain.look()
        for name in list(self.drain.sources):
            for row in self.drain.sources[name].rows():
                keep(row)
            keep(self.drain.sources[name].process)
            self.drain.bury(name).remove()

    def named(self):
        return {f"{name}.ring" for name in self.drain.sources}


def test_endless_passes_after_a_step_are_reported_as_left_out(program, monkeypatch):
    monkeypatch.setattr("profiler.recorder.steps.MOST_OPEN", 50)
    source = program.source()
    for _ in range(3):
        program.step()
    for _ in range(60):
        program.write(ring.FORWARD, 1, 1, 0, 0)
    (problem,) = of(Problem, source.rows())
    assert problem.code == "left-out"
    assert "2" in problem.message


def test_workers_restarted_each_epoch_do_not_fill_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_WORKERS", 6)
    loader = Loader(tmp_path)
    processes, batches, facts, problems = {}, [], [], []
    kept = {Batch: batches.append, Fact: facts.append, Problem: problems.append}
    kept[Process] = lambda process: processes.update({process.pid: process})
    for _ in range(20):
        loader.epoch(2, lambda row: kept[type(row)](row))
    assert not problems
    assert [processes[pid].worker_id for pid in sorted(processes)] == [0, 1] * 3
    one = min(process.events for process in processes.values())
    assert sum(process.events for process in processes.values()) == 40 * one
    assert len(batches) == 40
    assert {batch.pid for batch in batches} == {fact.pid for fact in facts} == set(processes)
    sketches = [source.sketches["batch"] for dead in loader.drain._dead.values() for source in dead]
    assert sum(sketch.count for sketch in sketches) == 40


def test_process_has_no_row_before_its_role_is_known(program):
    source = program.source()
    source.rows()
    assert not source.introduced
    program.say(line("process", role="worker", worker_id=1, parent=7))
    source.rows()
    assert source.introduced


def test_steps_without_a_tag_are_sketched(program):
    source = program.source()
    for _ in range(4):
        program.step()
    source.rows(final=True)
    assert source.sketches["duration"].count == 3  # the first has no defined start
    assert source.sketches["backward"].quantile(0.5) == pytest.approx(0.004, rel=0.02)


def test_gpu_times_replace_host_times(program):
    source = program.source()
    for _ in range(3):
        program.now += 1
        program.write(ring.GPU, 0, ring.MARK_FETCH_START, 0)
        program.write(ring.FETCH, 1, 1, -1)
        program.write(ring.GPU, 0, ring.MARK_FETCH_END, 0)
        program.write(ring.FORWARD, 1, 1, 1, 1)
        program.write(ring.BACKWARD, 1)
        program.write(ring.GPU, 0, ring.MARK_BACKWARD_END, 7 * MS)
        program.write(ring.GPU, 0, ring.MARK_OPTIMIZER_END, 5 * MS)
        program.write(ring.OPTIMIZER, 1, 1)
    steps = of(Step, source.rows(final=True))
    assert [step.duration for step in steps] == pytest.approx([0.004, 0.012, 0.012])  # the first is tagged
    assert steps[1].backward == pytest.approx(0.007)


def test_facts_become_rows(program):
    source = program.source()
    program.event_writer.fact("model", {"id": 1, "name": "Net"})
    program.event_writer.fact("allocator", ALLOCATOR)
    program.event_writer.fact("problem", {"source": "gc", "message": "gone", "code": "KeyError"})
    model, sample, problem = source.rows()
    assert (model.pid, model.kind, model.body) == (os.getpid(), "model", {"id": 1, "name": "Net"})
    assert 0 < model.time <= (clock() - program.origin) / 1e9
    assert sample == MemorySample(time=sample.time, pid=os.getpid(), **ALLOCATOR)
    assert (problem.pid, problem.source, problem.code) == (os.getpid(), "gc", "KeyError")
    assert problem.message.endswith(" (gone).")


def test_process_row_comes_from_its_process_fact(program):
    source = program.source()
    assert (source.process.pid, source.process.parent) == (os.getpid(), os.getppid())
    program.event_writer.fact("process", {"role": "worker", "worker_id": 2, "rank": 3, "torch": "2.13", "unknown": 1})
    assert source.rows() == []
    assert (source.process.role, source.process.worker_id, source.process.rank) == ("worker", 2, 3)
    assert source.process.torch == "2.13"


def test_window_is_stored_for_parsing_at_the_end(program):
    source = program.source()
    program.event_writer.fact("window", {"path": "a.json", "steps": 3, "start_ns": 5, "cost_s": 0.25})
    (fact,) = source.rows()
    assert (fact.kind, fact.body["id"]) == ("window", 1)
    assert source.windows[0]["path"] == "a.json"
    assert source.process.windows == 0.25


def test_process_row_has_overhead_and_lost_events(program):
    source = program.source()
    program.event_writer.measured_ns, program.event_writer.windows_ns = 30_000_000, 20_000_000
    program.event_writer.publish()
    program.step()
    source.rows()
    process = source.process
    assert process.events == source.cursor
    assert process.events_lost == 0
    assert process.hooks == pytest.approx(0.030 + source.cursor * program.event_writer.per_event_ns / 1e9)
    assert process.windows == pytest.approx(0.020)
    for _ in range(5000):
        program.write(ring.GC, 0)
    source.rows()
    assert source.process.events_lost > 0
    assert source.process.events + source.process.events_lost == source.cursor


def test_end_of_process_is_detected(program):
    source = program.source()
    source.rows()
    assert (source.ended, source.failed) == (False, False)
    program.event_writer.fact("end", {"failed": True})
    rows = source.rows()
    assert (source.ended, source.failed) == (True, True)

    another = program.source()  # after its recorder was killed having read the end
    another.resume(Tables(facts=tuple(of(Fact, rows))))
    assert (another.ended, another.failed) == (True, True)


def test_loader_and_flag_facts_are_completed_from_steps(program):
    source = program.source()
    for number in (1, 2, 3):
        program.event_writer.fact("loader", {"id": number})
    program.event_writer.fact("flags", {"autocast": True})
    rows = source.rows()
    assert [row.body.get("training") for row in rows if row.kind == "loader"] == [None] * 3
    program.step()
    program.evaluate()
    program.step()
    program.step()
    facts = of(Fact, source.rows())
    assert {fact.body["id"]: fact.body["training"] for fact in facts if fact.kind == "loader"} == {1: True, 2: False}
    assert [fact.body["evaluation_grad"] for fact in facts if fact.kind == "flags"] == [True]
    program.event_writer.fact("flags", {"autocast": False})
    (flags,) = of(Fact, source.rows())
    assert flags.body == {"autocast": False, "evaluation_grad": True}


def test_missing_step_boundaries_are_reported_once_with_remedy(program, monkeypatch):
    monkeypatch.setattr("profiler.recorder.steps.MOST_OPEN", 50)
    monkeypatch.setattr("profiler.recorder.steps.MOST_BEFORE", 50)
    source = program.source()
    problems = []
    for _ in range(3):
        for _ in range(60):
            program.write(ring.FETCH, 1, 1, -1)
        problems += of(Problem, source.rows())
    (problem,) = problems
    assert "profiler.step()" in problem.message


def test_records_after_a_missing_one_are_read_at_the_end(program):
    source = program.source()
    program.step()
    next(program.event_writer._ring._sequence)  # Ctrl-C between taking a number and writing the record
    program.step()
    assert len(of(Step, source.rows(final=True))) == 2
    assert source.process.events_lost == 1


# ---- resuming ----


def test_resumed_reader_repeats_and_skips_nothing(program):
    source = program.source()
    program.event_writer.fact("model", {"id": 1})
    program.write(ring.BATCH, 1, 1)
    first = source.rows()
    assert source.rows() == []
    program.event_writer.fact("model", {"id": 2})
    program.write(ring.BATCH, 1, 2)
    other = program.source(cursor=source.cursor, offset=source.offset)
    second = other.rows()
    assert [row.body["id"] for row in of(Fact, first)] == [1]
    assert [row.body["id"] for row in of(Fact, second)] == [2]
    assert [row.loader for row in of(Batch, first)] == [1]
    assert [row.loader for row in of(Batch, second)] == [2]


def test_a_line_that_is_half_written_is_read_next_time(program):
    source = program.source()
    whole = line("model", id=1, name="Nét")
    for cut in range(1, len(whole)):
        program.say(whole[:cut])
        assert source.rows() == []
        program.say(whole[cut:])
        (row,) = source.rows()
        assert row.body == {"id": 1, "name": "Nét"}


def test_events_are_read_without_a_facts_file(program):
    program.facts.unlink()
    program.step()
    assert len(of(Step, program.source().rows(final=True))) == 1


def test_removing_a_source_deletes_its_files(program, tmp_path):
    source = program.source()
    source.rows(final=True)
    source.remove()
    source.remove()
    assert list(tmp_path.iterdir()) == []


# ---- invalid facts ----

GOOD = line("model", id=77)

GARBAGE = [
    b"\n",
    b"\x00\xff\xfe\n",
    b"null\n",
    b"[1, 2]\n",
    b'"text"\n',
    b"{}\n",
    b'{"kind": "model"}\n',
    b'{"kind": "model", "t": "soon"}\n',
    b'{"kind": "model", "t": null}\n',
    b'{"kind": "model", "t": 1e999}\n',
    b'{"kind": "model", "t": NaN}\n',
    b'{"kind": "model", "t": ' + b"9" * 3000 + b"}\n",
    b'{"kind": "model", "t": ' + b"9" * 10_000 + b"}\n",
    b"[" * 100_000 + b"\n",
    b'{"a":' * 100_000 + b"\n",
    b'{"kind": "loader", "t": 1, "id": [1]}\n',
    b'{"kind": "loader", "t": 1}\n',
    b'{"kind": "allocator", "t": 1}\n',
    b'{"kind": "region", "t": 1, "id": {}}\n',
    line("allocator", **ALLOCATOR | {"allocated": 2**63}),
    line("allocator", **ALLOCATOR | {"device": "x"}),
    line("allocator", **ALLOCATOR | {"reserved": None}),
    line("problem", source="x"),
    line("window", path="x", cost_s="much"),
    line("window", path="x"),
    line("window", path="x", cost_s=None),
    line("model", id=1, name="x" * (MOST_LINE + 1)),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_invalid_facts_are_skipped(program, garbage):
    source = program.source()
    program.say(garbage, GOOD)
    rows = source.rows()
    assert [row.body for row in of(Fact, rows)] == [{"id": 77}]
    assert len(rows) == 1
    assert source.rows() == []


def test_a_line_without_an_end_does_not_fill_the_memory(program):
    source = program.source()
    program.say(b"x" * (MOST_LINE + 1))
    assert source.rows() == []
    assert source.offset == MOST_LINE + 1
    program.say(b"x" * 10 + b"\n", GOOD)
    assert [row.body for row in source.rows()] == [{"id": 77}]


@pytest.mark.parametrize("value", ["banana", None, 2**63, -1.5, [1], {"a": 1}, True, float("nan")])
@pytest.mark.parametrize("field", ["role", "rank", "world_size"])
def test_invalid_process_fields_keep_their_defaults(program, field, value):
    source = program.source()
    program.say(line("process", **{"torch": "2.13", field: value}))
    source.rows()
    assert (source.process.role, source.process.rank, source.process.world_size) == ("rank", 0, 1)
    assert source.process.torch == "2.13"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
KINDS = st.sampled_from(["process", "allocator", "problem", "window", "end", "loader", "flags", "model", "region", "x"])
NAMES = st.sampled_from(
    ["id", "t", "kind", "cost_s", "source", "message", "role", "rank", "name", "path", "steps", "training", *ALLOCATOR]
)
FACTS = st.builds(
    lambda kind, time, body: {"kind": kind, "t": time, **body},
    KINDS,
    st.integers() | st.just(1),
    st.dictionaries(NAMES, JSON, max_size=8) | st.just(ALLOCATOR),
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(facts=st.lists(FACTS, min_size=1, max_size=8), damage=st.none() | st.tuples(st.floats(0, 0.999), st.binary()))
def test_arbitrary_facts_can_be_stored(tmp_path_factory, facts, damage):
    """The recording continues, and whatever was accepted as a fact fits into the store."""
    folder = tmp_path_factory.mktemp("run")
    program = Program(folder)
    try:
        text = b"".join(json.dumps(fact).encode() + b"\n" for fact in facts)
        if damage is not None:
            at = int(damage[0] * len(text))
            text = text[:at] + damage[1] + text[at + len(damage[1]) :]
        program.say(text)
        source = program.source()
        rows = source.rows() + source.rows(final=True)
        store = Writer(folder, "host")
        store.add(
            Run(id="1", command=(), cwd="", host="host", started_at=0, cores=1, cores_total=1, memory_total=1,
                platform="", python="", version="")
        )  # fmt: skip
        store.add(*rows, source.process)
        assert store.close()
        (path,) = find(folder)
        assert len(read(path).processes) == 1
    finally:
        program.event_writer.publish()


@settings(deadline=None, max_examples=80)
@given(
    flips=st.lists(st.tuples(st.sampled_from(["head", "records", "facts"]), st.floats(0, 0.999), st.integers(1, 255))),
    cut=st.none() | st.tuples(st.sampled_from(["ring", "facts"]), st.floats(0, 1)),
)
def test_damaged_files_are_refused_or_read(tmp_path_factory, flips, cut):
    """Only opening may raise, and only ValueError or OSError."""
    folder = tmp_path_factory.mktemp("rings")
    program = Program(folder)
    program.say(line("process", rank=1), line("loader", id=1), line("allocator", **ALLOCATOR), GOOD)
    for _ in range(10):
        program.step()
        program.evaluate()
        program.write(ring.BATCH, 3, 1, MS, MS, 8, 1)
        program.write(ring.GPU, 0, ring.MARK_OPTIMIZER_END, MS)
    program.event_writer.publish()
    contents = {"ring": bytearray(program.ring.read_bytes()), "facts": bytearray(program.facts.read_bytes())}
    written = 200 * ring.RECORD.size
    for which, where, mask in flips:
        content = contents["facts" if which == "facts" else "ring"]
        first, size = {"head": (0, 96), "records": (ring.HEADER_SIZE, written), "facts": (0, len(content))}[which]
        content[first + int(where * size)] ^= mask
    if cut is not None:
        del contents[cut[0]][int(cut[1] * len(contents[cut[0]])) :]
    program.ring.write_bytes(contents["ring"])
    program.facts.write_bytes(contents["facts"])
    try:
        source = program.source()
    except (ValueError, OSError):
        return
    for final in (False, False, True):
        for row in source.rows(final=final):
            assert isinstance(row, Step | Batch | MemorySample | Fact | Problem)
    assert source.process.events + source.process.events_lost == source.cursor


# ---- the folder ----


def test_new_rings_are_opened_and_invalid_ones_reported_once(tmp_path):
    drain = Drain(tmp_path, 0, lambda name: 0)
    drain.look()
    assert drain.sources == {}
    (tmp_path / "1-1.ring").write_bytes(b"no ring")
    (tmp_path / "2-2.ring").write_bytes(b"")  # checked again later
    event_writer = EventWriter(str(tmp_path), worker=True)
    for _ in range(2):
        drain.look()
    assert [source.pid for source in drain.sources.values()] == [os.getpid()]
    (problem,) = drain.problems
    assert "1-1.ring" in problem.message
    event_writer.publish()


def test_reading_resumes_at_cursors_of_earlier_recorder(tmp_path):
    event_writer = EventWriter(str(tmp_path), worker=True)
    event_writer.fact("model", {"id": 1})
    (path,) = tmp_path.glob("*.ring")
    read_so_far = EventSource(path, 0)
    read_so_far.rows()
    cursors = {f"ring {path.stem}": read_so_far.cursor, f"facts {path.stem}": read_so_far.offset}
    event_writer.fact("model", {"id": 2})
    drain = Drain(tmp_path, 0, lambda name: cursors.get(name, 0))
    drain.look()
    (source,) = drain.sources.values()
    assert [row.body["id"] for row in source.rows()] == [2]
    event_writer.publish()


def test_a_folder_that_is_gone_has_no_rings(tmp_path):
    drain = Drain(tmp_path / "gone", 0, lambda name: 0)
    drain.look()
    assert drain.sources == {}
