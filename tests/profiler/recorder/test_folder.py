"""Who may write into a run folder: recorders of the same job, never those of another job."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from profiles import RUN
from programs import ROOT

from profiler import ours
from profiler.recorder import folder as run_folder
from profiler.recorder.job import Job
from profiler.recorder.record import new_run
from profiler.store import Writer

NODES = [Job("j", "host", f"node{number}") for number in (0, 1)]
HERE = (os.getpid(), run_folder.started(os.getpid()))


def record(seat, job, *, end=False):
    """Write as a recorder does; with `end`, until it has ended."""
    Writer(seat.folder, seat.part or job.host).close()
    if end:
        run_folder.remove_note(seat.folder, seat.part)


def elsewhere(folder, part="", **changes):
    """Turn the note into one of a recorder on another machine, whose PID is meaningless here."""
    note = next(note for note in run_folder.notes(folder) if note.part == part)
    run_folder.write_note(folder, replace(note, where="another boot", recorder=1, recorder_started=0.0, **changes))


def names(folder):
    return sorted(path.name for path in folder.glob("run-*.db"))


def test_nodes_of_a_job_share_a_folder(tmp_path):
    out = tmp_path / "run"
    seats = [run_folder.join(out, "train.py", job) for job in NODES]
    for seat, job in zip(seats, NODES, strict=True):
        record(seat, job)

    assert {seat.folder for seat in seats} == {out}
    assert [seat.notice for seat in seats] == [None, None]
    assert names(out) == ["run-host-node0.db", "run-host-node1.db"]
    assert run_folder.is_shared(out)


def test_folder_of_another_user_gives_notice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_folder.join(None, "train.py", None).notice is None
    monkeypatch.setattr("profiler.private.is_ours", lambda folder: False)
    assert run_folder.DEFAULT in run_folder.join(None, "train.py", None).notice


def test_nodes_without_a_node_rank_are_numbered(tmp_path):
    job = Job("j", "host", "node")
    assert [run_folder.join(tmp_path / "run", "train.py", job).part for _ in range(2)] == ["host-node", "host-node-2"]


def test_a_node_that_ends_early_does_not_lose_its_recording(tmp_path):
    record(run_folder.join(tmp_path / "run", "train.py", NODES[0]), NODES[0], end=True)
    record(run_folder.join(tmp_path / "run", "train.py", NODES[1]), NODES[1], end=True)

    assert names(tmp_path / "run") == ["run-host-node0.db", "run-host-node1.db"]


def test_restarted_job_replaces_the_whole_earlier_run(tmp_path):
    out = tmp_path / "run"
    for job in NODES:
        record(run_folder.join(out, "train.py", job), job, end=True)
    again = run_folder.join(out, "train.py", NODES[1])

    assert names(again.earlier) == ["run-host-node0.db", "run-host-node1.db"]
    assert names(out) == []
    record(again, NODES[1])
    assert run_folder.join(out, "train.py", NODES[0]).notice is None
    assert names(out) == ["run-host-node1.db"]


def test_restart_with_scheduler_job_name_replaces_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs = [replace(job, start="slurm-77") for job in NODES]
    found = []
    for job in (*jobs, *jobs):
        seat = run_folder.join(None, "train.py", job)
        record(seat, job, end=True)
        found.append(seat.folder.name)

    assert found == ["slurm-77-train"] * 2 + ["slurm-77-train-2"] * 2


@pytest.mark.parametrize("other", [Job("k", "host", "node1"), Job("k", "host"), None])
def test_another_job_gets_its_own_folder(tmp_path, other):
    out = tmp_path / "run"
    run_folder.join(out, "train.py", NODES[0])
    seat = run_folder.join(out, "train.py", other)

    assert seat.folder == tmp_path / "run-2"
    assert str(out) in seat.notice
    assert str(seat.folder) in seat.notice


def test_same_command_is_two_runs_on_one_host_but_one_run_on_two_hosts(tmp_path):
    job = Job("j", "host")
    out = tmp_path / "run"
    assert run_folder.join(out, "train.py", job) == run_folder.Seat(out)
    assert run_folder.join(out, "train.py", job).folder == tmp_path / "run-2"

    elsewhere(out)
    assert run_folder.join(out, "train.py", replace(job, host="second")) == run_folder.Seat(out, "second")


def test_remote_recorder_counts_as_running_while_its_heartbeat_is_fresh(tmp_path):
    out = tmp_path / "run"
    run_folder.join(out, "train.py", NODES[0])
    elsewhere(out, "host-node0")
    assert run_folder.is_running(out)

    note = out / "recording-host-node0.json"
    long_ago = note.stat().st_mtime - 2 * run_folder.SILENT
    os.utime(note, (long_ago, long_ago))
    assert not run_folder.is_running(out)
    run_folder.heartbeat(out, "host-node0")
    assert run_folder.is_running(out)


def test_only_one_holder_has_the_lock_at_a_time(tmp_path):
    with (
        run_folder.lock(tmp_path, "reporting", patience=0.0) as first,
        run_folder.lock(tmp_path, "reporting", 0.0) as second,
    ):
        assert (first, second) == (True, False)
    with run_folder.lock(tmp_path, "reporting", patience=0.0) as again:
        assert again
    (tmp_path / ".reporting").mkdir()
    os.utime(tmp_path / ".reporting", (0, 0))
    with run_folder.lock(tmp_path, "reporting", patience=0.0) as ours:
        assert ours, "the process that left it ended long ago"


HOLDS = """
import sys
from pathlib import Path
from profiler.recorder.folder import lock
with lock(Path(sys.argv[1]), "reporting", 0.0) as ours:
    print(ours, flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_lock_of_killed_process_is_free_at_once(tmp_path):
    command = [sys.executable, "-c", HOLDS, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout.readline() == b"True\n"
        with run_folder.lock(tmp_path, "reporting", patience=0.0) as ours:
            assert not ours, "its process is there"
        holder.kill()
        holder.wait()
        with run_folder.lock(tmp_path, "reporting", patience=0.0) as ours:
            assert ours
    assert list(tmp_path.iterdir()) == []


def test_lock_of_process_on_another_machine_expires_by_age(tmp_path):
    with run_folder.lock(tmp_path, "reporting", patience=0.0):
        (mark,) = (tmp_path / ".reporting").iterdir()
        mark.write_text(json.dumps(["another boot", 1, 0.0]))
        with run_folder.lock(tmp_path, "reporting", patience=0.0) as ours:
            assert not ours
        os.utime(mark, (0, 0))
        with run_folder.lock(tmp_path, "reporting", patience=0.0) as ours:
            assert ours


@pytest.mark.parametrize("text", ["", "{}", "[1, 2, 3]", "[" * 100_000])
def test_lock_with_unreadable_mark_is_still_held(tmp_path, text):
    with run_folder.lock(tmp_path, "reporting", patience=0.0):
        (mark,) = (tmp_path / ".reporting").iterdir()
        mark.write_text(text)
        with run_folder.lock(tmp_path, "reporting", patience=0.0) as ours:
            assert not ours


def test_waiters_for_a_killed_holder_get_the_lock_one_at_a_time(tmp_path):
    left = tmp_path / ".reporting"
    left.mkdir()
    (left / "left").write_text(json.dumps([run_folder.machine_id(), HERE[0], HERE[1] - 1.0]))
    inside, most, had = [], [], []

    def take():
        for _ in range(20):
            with run_folder.lock(tmp_path, "reporting", patience=60.0) as ours:
                inside.append(1)
                most.append(len(inside))
                had.append(ours)
                inside.pop()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(take) for _ in range(8)]:
            done.result()
    assert had == [True] * 160
    assert max(most) == 1
    assert list(tmp_path.iterdir()) == []


def test_folder_is_removed_if_nothing_was_recorded(tmp_path):
    seat = run_folder.join(tmp_path / "run", "train.py", NODES[0])
    run_folder.leave(seat, run_folder.make_rings(seat.folder, seat.part))
    assert not (tmp_path / "run").exists()


JOB = Job("j", "host")


def holding(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def recorded(folder, outcome):
    """Make a run with this outcome, a report and a window; return its seat."""
    seat = run_folder.join(folder, "train.py", JOB)
    writer = Writer(folder, JOB.host)
    writer.add(replace(new_run(("train.py",), 0, 0.01), outcome=outcome))
    writer.close()
    run_folder.remove_note(folder)
    for path in (folder / "report.md", run_folder.make_windows(folder) / "window-1-1.json"):
        path.write_text("ours")
    ours.add(folder / "report.md")
    return seat


def test_user_files_in_run_folder_survive_later_runs(tmp_path):
    out = tmp_path / "run"
    recorded(out, "completed")
    theirs = {
        "result.json": "theirs",
        "windows/w.npy": "theirs",
        "windows/theirs.json": "theirs",
        "report.md": "ours, with a note",  # changed, so it is now theirs
        "run-of-cards.db-wal": "theirs",
        "job": "theirs",
        "recording of a song.json": "theirs",
    }
    for name, text in theirs.items():
        (out / name).write_text(text)
    for _ in range(2):
        seat = run_folder.join(out, "train.py", JOB)
        assert seat.folder == out
        record(seat, JOB, end=True)
        run_folder.settle(seat.earlier, completed=True)
    left = [path for path in out.rglob("*") if path.is_file() and path.name != "run-host.db"]

    assert {str(path.relative_to(out)): path.read_text() for path in left} == theirs


def test_warning_names_the_script_of_the_recording_to_be_replaced(tmp_path):
    out = tmp_path / "run"
    first = run_folder.join(out, "train.py", JOB)
    writer = Writer(out, JOB.host)
    writer.add(replace(RUN, command=("slow.py", "--fast")))
    writer.close()
    run_folder.remove_note(out)

    assert first.warning is None
    assert "recording of slow.py in" in run_folder.join(out, "other.py", JOB).warning


@pytest.mark.parametrize(
    ("before", "completed", "kept"), [("completed", False, True), ("completed", True, False), ("failed", False, False)]
)
def test_completed_recording_is_kept_if_the_next_fails(tmp_path, before, completed, kept):
    out = tmp_path / "run"
    recorded(out, before)
    seat = run_folder.join(out, "train.py", JOB)
    record(seat, JOB, end=True)
    message = run_folder.settle(seat.earlier, completed=completed)

    assert seat.earlier.is_dir() == bool(message) == kept
    assert not kept or {path.name for path in seat.earlier.rglob("*") if path.is_file()} == {
        ".profile-train.json",
        "report.md",
        "run-host.db",
        "window-1-1.json",
    }


def test_earlier_recording_is_restored_if_nothing_is_recorded(tmp_path):
    out = tmp_path / "run"
    recorded(out, "completed")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    seat = run_folder.join(out, "train.py", JOB)
    run_folder.leave(seat, run_folder.make_rings(out))

    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["recording.json", "windows"])
def test_folder_with_a_conflicting_file_name_is_not_used(tmp_path, name):
    out = tmp_path / "mine"
    recorded(out, "completed")
    (out / "windows" / "window-1-1.json").unlink()
    (out / "windows").rmdir()
    (out / name).mkdir() if name == "windows" else (out / name).write_text('{"song": 1}')
    assert run_folder.join(out, "train.py", JOB).folder == tmp_path / "mine-2"


def test_user_file_named_like_the_note_is_not_removed(tmp_path):
    run_folder.join(tmp_path / "run", "train.py", JOB)
    (tmp_path / "run" / "recording.json").write_text('{"song": 1}')
    run_folder.remove_note(tmp_path / "run")
    assert holding(tmp_path / "run") == {"recording.json": '{"song": 1}'}


def test_written_files_never_overwrite_user_files(tmp_path):
    (tmp_path / "result.json").write_text("theirs")
    for text in ("first", "second"):
        written = ours.free(tmp_path, "result.json")
        written.write_text(text)
        ours.add(written)

    assert ours.listed(tmp_path, "result.json") == written
    assert ours.listed(tmp_path, "report.md") is None
    assert ours.unchanged(tmp_path) == [written]
    written.write_text("edited")
    assert ours.listed(tmp_path, "result.json") is None
    assert ours.free(tmp_path, "result.json") not in (written, tmp_path / "result.json")
    assert (tmp_path / "result.json").read_text() == "theirs"


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"../result.json": "x", "a": 1}'])
def test_invalid_file_list_lists_nothing(tmp_path, text):
    (tmp_path / ours.LIST).write_text(text)
    assert ours.unchanged(tmp_path) == []
