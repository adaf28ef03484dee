"""A recording is damaged: truncated files, changed or foreign bytes, other versions.

However a file is damaged, a report shows the intact part, or one sentence says why there is no report: no other
exception, no hang, and no allocation of a size that a damaged length claims.
"""

import contextlib
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.cli import main
from advisor.publish import report_of
from advisor.report.render import markdown, result_json
from advisor.runs.load import load
from profiler import ours
from profiler.agent import ring
from profiler.agent.event_writer import EventWriter
from profiler.errors import ProfilerError
from profiler.options import RecordingOptions
from profiler.recorder.folder import NOTE
from profiler.recorder.record import Recorder, finish_orphan, new_run
from profiler.schema import SCHEMA_VERSION
from profiler.store import find, read

MS = 1_000_000
MOST_MEMORY = 1 << 30
STEPS = 40
RINGS = "profile-train-rings"

damaging = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)

FACTS = [
    ("process", {"role": "rank", "rank": 0, "world_size": 1, "torch": "2.13.0", "python": "3.11.7"}),
    ("loader", {"id": 1, "dataset": "Images", "length": 40, "batch_size": 8, "num_workers": 2, "batch_bytes": 4096}),
    ("model", {"id": 1, "name": "Net", "parameters": 64, "trainable": 64, "bytes": 256, "dtypes": {"float32": 64}}),
    ("optimizer", {"id": 1, "name": "SGD", "module": "torch.optim.sgd", "parameters": 64, "lr": 0.1}),
    ("flags", {"autocast": False, "threads": 2, "cudnn_benchmark": False}),
    ("region", {"id": 1, "name": "warm-up"}),
    ("problem", {"source": "gc", "message": "gave up"}),
]


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory):
    """Return a run folder and its rings as a killed recorder leaves them: half of the run is stored, half is in the
    ring."""
    top = tmp_path_factory.mktemp("cut-off")
    # In its own process, which must have ended: otherwise the recording would count as active.
    subprocess.run([sys.executable, "-c", RECORD, top], check=True)
    return top


def record(top):
    """Record, as the process that `cut_off` starts."""
    folder, rings = top / "run", top / RINGS
    for one in (folder, rings):
        one.mkdir(mode=0o700)
    event_writer = EventWriter(str(rings), worker=True)
    for kind, body in FACTS:
        event_writer.fact(kind, body)
    origin = time.perf_counter_ns()
    run = new_run(("train.py", "--lr", "1"), origin, 0.01)
    recorder = Recorder(folder, rings, run, os.getpid(), RecordingOptions(stacks=False), origin=origin)
    for at in range(STEPS):
        begin = origin + (at + 1) * 20 * MS
        for kind, start, duration, values in (
            (ring.FETCH, 0, 5, (1, at % 3, 0)),
            (ring.BATCH, 1, 3, (1, MS, MS, 8, 1)),
            (ring.FORWARD, 5, 4, (1, 1, 1)),
            (ring.BACKWARD, 9, 6, ()),
            (ring.OPTIMIZER, 15, 4, (1,)),
        ):
            event_writer.write(0, kind, begin + start * MS, begin + (start + duration) * MS, *values)
        if at == STEPS // 2:
            recorder.suspend()
    event_writer.publish()


RECORD = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]!r}
import importlib.util
from pathlib import Path
spec = importlib.util.spec_from_file_location("damage", {__file__!r})
damage = importlib.util.module_from_spec(spec)
spec.loader.exec_module(damage)
damage.record(Path(sys.argv[1]))
"""


@contextlib.contextmanager
def copied(top):
    """Yield another copy, which can be damaged; its note names the copy as the run folder."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("run", RINGS):
            shutil.copytree(top / name, Path(place) / name)
        note = json.loads((top / "run" / NOTE).read_text())
        note |= {"rings": f"{place}/{RINGS}", "home": [f"{place}/run", (Path(place) / "run").stat().st_ino]}
        (Path(place) / "run" / NOTE).write_text(json.dumps(note))
        yield Path(place)


@pytest.fixture(scope="module")
def undamaged(cut_off):
    """Yield a run folder that was recorded to its end."""
    with copied(cut_off) as place:
        finish_orphan(place / "run")
        yield place / "run"


@contextlib.contextmanager
def bounded_memory():
    """Make allocations of more than MOST_MEMORY beyond what is used raise MemoryError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def reported(folder):
    """Return the report as JSON, or None; anything but a ProfilerError of one sentence and a remedy fails the test."""
    try:
        with bounded_memory():
            finish_orphan(folder)
            report = report_of(load(folder), folder)
            markdown.render(report)
            return json.loads(result_json.render(report))
    except ProfilerError as error:
        raised = error
    assert raised.message
    assert raised.remedy
    return None


@st.composite
def damage(draw):
    """Return a function of bytes that keeps a prefix, flips bytes, writes a range of zeros, or appends or inserts
    bytes."""
    how = draw(st.sampled_from(["cut", "flip", "zero", "append", "insert"]))
    where = draw(st.floats(0, 1, exclude_max=True))
    garbage = draw(st.binary(min_size=1, max_size=200))
    masks = draw(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=20))

    def apply(content):
        at = int(where * len(content))
        if how == "cut":
            return content[:at]
        if how == "append":
            return content + garbage * (1 + at % 50)
        if how == "insert":
            return content[:at] + garbage + content[at:]
        changed = bytearray(content)
        if how == "zero":
            changed[at : at + 512] = bytes(len(changed[at : at + 512]))
        else:
            for place, mask in masks:
                changed[int(place * len(changed))] ^= mask
        return bytes(changed)

    return apply


def test_undamaged_recording_is_complete(cut_off, undamaged):
    with copied(cut_off) as place:
        assert len(read(find(place / "run")[0]).steps) < STEPS
    assert not (undamaged / NOTE).exists()
    result = reported(undamaged)
    assert STEPS - 1 <= result["steps"]["count"] <= STEPS
    assert result["run"]["command"] == ["train.py", "--lr", "1"]


@pytest.mark.fault(
    "The store is damaged: truncated, or bytes flipped, zeroed, inserted or appended",
    "has ended",
    "all rows that SQLite can still read, from both ends of each table",
    "that the recording is damaged, and what could be read",
)
def test_damaged_store_is_reported_as_far_as_readable(undamaged):
    (path,) = find(undamaged)
    content = path.read_bytes()
    outcomes = set()

    @damaging
    @given(damage())
    def check(apply):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / path.name).write_bytes(apply(content))
            outcomes.add(reported(Path(folder)) is not None)

    check()
    assert outcomes == {True, False}


@pytest.mark.fault(
    "The recorder was killed, and its rings, facts, log or note are damaged",
    "has ended",
    "the store, and every complete record of the rest",
    "that the rest was read, and the name of a ring that is unreadable",
)
@pytest.mark.parametrize("which", ["*/*.ring", "*/*.facts", "run/*.json", "*/problems"])
def test_damaged_remaining_files_lose_nothing_stored(cut_off, which):
    if which == "*/problems":
        (cut_off / RINGS / "problems").write_bytes(b"12 34 there was no room\n")
    half = len(read(find(cut_off / "run")[0]).steps)

    @settings(damaging, max_examples=25)
    @given(damage())
    def check(apply):
        with copied(cut_off) as place:
            (path,) = place.glob(which)
            path.write_bytes(apply(path.read_bytes()))
            result = reported(place / "run")
            assert result is not None
            assert result["steps"]["count"] >= half
            assert len(read(find(place / "run")[0]).steps) <= 3 * STEPS

    check()


@pytest.mark.parametrize(
    "note",
    [
        {"rings": "/", "recorder": -5},
        {"recorder": 2**70, "program": 2**70},
        {"origin": "now"},
        {"rings": 5},
        {"program": None},
        {"home": 5},
    ],
)
def test_note_in_run_folder_is_not_trusted(cut_off, note):
    """It may come with someone else's folder: the folder that it names as the rings' is not removed."""
    with copied(cut_off) as place:
        precious = place / "profile-train-precious"
        precious.mkdir(mode=0o700)
        (precious / "thesis.tex").write_text("mine")
        path = place / "run" / NOTE
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rings": str(precious)} | note))
        assert reported(place / "run")["steps"]["count"] > 0
        assert (precious / "thesis.tex").read_text() == "mine"


# ---- messages of the command ----


def run_command_line(capsys, *words):
    """Return exit status and stderr of a command line."""
    status = main([str(word) for word in words])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, " ".join(captured.err.split())


def foreign(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER, version TEXT)")
        connection.commit()


@pytest.mark.fault(
    "A file with the name of a recording is empty, not a database, or a foreign database",
    "has ended",
    "the file, unchanged",
    "which of these it is",
)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b""), "is empty: the recorder ended before it could write."),
        (lambda path: path.write_bytes(b"import torch\n" * 999), "is damaged: no part of it can be read"),
        (lambda path: path.write_bytes(bytes(9999)), "is damaged: no part of it can be read"),
        (foreign, "is not a profile-train recording."),
    ],
    ids=["empty", "text", "zeros", "foreign"],
)
def test_file_that_is_not_a_recording_is_reported(tmp_path, capsys, make, message):
    path = tmp_path / "run-node.db"
    make(path)
    content = path.read_bytes()
    status, err = run_command_line(capsys, "report", tmp_path)
    assert status == 1
    assert message in err
    assert path.read_bytes() == content


@pytest.mark.fault(
    "`profile-train report` gets a folder of other files, or a folder that does not exist",
    "has ended",
    "the folder, unchanged",
    "what to pass instead",
)
def test_folder_without_a_recording_is_refused_unchanged(tmp_path, capsys):
    (tmp_path / "train.py").write_text("import torch")
    status, err = run_command_line(capsys, "report", tmp_path)
    assert status == 1
    assert str(tmp_path) in err
    status, err = run_command_line(capsys, "report", tmp_path / "train.py")
    assert status == 1
    assert str(tmp_path / "train.py") in err
    (tmp_path / "report.md").touch()
    status, err = run_command_line(capsys, "report", tmp_path / "report.md")
    assert status == 2
    assert str(tmp_path / "report.md") in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.md", "train.py"]


def altered(folder, *statements):
    (path,) = find(folder)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


@pytest.fixture
def run_folder(undamaged, tmp_path):
    return Path(shutil.copytree(undamaged, tmp_path / "run"))


@pytest.mark.fault(
    "The run folder is from a newer profile-train with an unknown schema",
    "has ended",
    "the file, unchanged",
    "which version wrote it, and the command that installs it",
)
@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("9.9.1", "pip install --upgrade 'profile-train>=9.9.1'"),
        ("1; rm -rf /", "pip install --upgrade 'profile-train'"),
        (None, "pip install --upgrade 'profile-train'"),
    ],
)
def test_newer_schema_is_refused_with_upgrade_command(run_folder, capsys, version, command):
    rename = "UPDATE runs SET version = x'ff'" if version is None else f"UPDATE runs SET version = '{version}'"
    path = altered(run_folder, rename, f"PRAGMA user_version = {SCHEMA_VERSION + 3}")
    content = path.read_bytes()
    status, err = run_command_line(capsys, "report", run_folder)
    assert status == 1
    assert f"(schema {SCHEMA_VERSION + 3})" in err
    assert f"schema {SCHEMA_VERSION}." in err
    assert err.endswith(f"Upgrade it: {command}")
    assert "rm -rf" not in err
    assert path.read_bytes() == content
    assert [each.name for each in run_folder.iterdir()] == [path.name]


@pytest.mark.fault(
    "The run folder is from an older profile-train whose tables lack newer columns",
    "has ended",
    "the file, unchanged; all its data is read",
    "the report; missing data is not measured",
)
def test_older_schema_is_read_unchanged(run_folder, capsys):
    path = altered(
        run_folder,
        f"PRAGMA user_version = {SCHEMA_VERSION - 1}",
        "ALTER TABLE steps DROP COLUMN host_launch",
        "ALTER TABLE steps DROP COLUMN forward",
        "ALTER TABLE runs DROP COLUMN recorder_cpu",
        "DROP TABLE kernels",
        "DROP TABLE sketches",
    )
    content = path.read_bytes()
    status, _ = run_command_line(capsys, "report", run_folder)
    assert status == 0
    result = json.loads((run_folder / "result.json").read_text())
    assert result["steps"]["count"] >= STEPS - 1
    assert result["phases"]["forward"] is None
    assert path.read_bytes() == content


def test_damage_is_mentioned_in_every_report_format(run_folder, capsys):
    (path,) = find(run_folder)
    content = bytearray(path.read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'host_samples'").fetchone()
    content[(page - 1) * 4096 : (page - 1) * 4096 + 64] = bytes(64)
    path.write_bytes(content)
    status, err = run_command_line(capsys, "report", run_folder)
    assert status == 0
    assert "is damaged" in err
    assert "is damaged" in (run_folder / "report.md").read_text()
    problems = json.loads((run_folder / "result.json").read_text())["environment"]["problems"]
    assert any("is damaged" in problem["message"] for problem in problems)


def test_two_simultaneous_reports_are_both_complete(run_folder):
    failures = []

    def report():
        try:
            assert main(["report", "--no-summary", str(run_folder)]) == 0
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=report) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert json.loads((run_folder / "result.json").read_text())["steps"]["count"] >= STEPS - 1
    assert (run_folder / "report.html").read_text().rstrip().endswith("</html>")
    assert [path.name for path in run_folder.iterdir() if path.name.startswith(".")] == [ours.LIST]
