"""A run folder becomes rows, whatever it contains."""

import contextlib
import json
import os
import sqlite3

import pytest
from fleet_made import START, advised, result, row, write

from advisor.fleet.columns import CAUSES
from advisor.fleet.places import find
from advisor.fleet.read import TEXT, read, script_of


def test_a_run_is_read_from_its_store_and_its_result(tmp_path):
    what = result(duration=7200.0, gpus=4, step=0.2, phases={"data_wait": 0.25, "gc": 0.0, "sync": None})
    found = read(str(write(tmp_path / "run", row(7, duration=7200.0), what))).run
    assert (found.status, found.note, found.run_id) == ("complete", "", f"{7:032x}")
    assert (found.project, found.user_name, found.commit_id, found.host) == ("vision", "ann", "a" * 40, "node1")
    assert (found.gpu_hours, found.cpu_hours, found.device) == (8.0, None, "H100")
    assert found.lost_data_wait == pytest.approx(0.9 * 0.25)  # steps are nine tenths of the run
    assert found.lost_gc == 0.0
    assert found.lost_sync is None
    assert found.lost_checkpoint_save is None


def test_hours_are_cpu_hours_without_gpu(tmp_path):
    found = read(str(write(tmp_path / "run", row(), result(gpus=0)))).run
    assert (found.gpu_hours, found.cpu_hours, found.device) == (None, 4.0, "A CPU")


def test_fields_missing_in_older_version_are_none(tmp_path):
    old = row(user=None, project=None, commit=None)
    found = read(str(write(tmp_path / "run", old, {"schema": "profile-train/result@1"})))
    assert found.run.status == "complete"
    missing = ("user_name", "project", "commit_id", "gpu_hours", "cpu_hours", "work", "step_time_s", "crowded")
    assert {name: getattr(found.run, name) for name in missing} == dict.fromkeys(missing)
    assert all(getattr(found.run, f"lost_{cause}") is None for cause in CAUSES)


def test_gains_are_composed_within_a_run(tmp_path):
    advice = [advised("a", 0.5), advised("b", 0.5, 0.2), advised("c", 0.4, severity="info"), advised("d", 0.1, 0.1)]
    found = read(str(write(tmp_path / "run", row(), result(advice=advice))))
    assert [one.rule for one in found.advice] == ["a", "b", "d"]
    saved = [one.saves_in_plan for one in found.advice]
    assert saved == pytest.approx([0.9 * 0.5, 0.9 * 0.5 * 0.2, 0.9 * 0.5 * 0.8 * 0.1])
    assert found.run.plan_saves == pytest.approx(sum(saved))
    assert found.advice[1].saves_alone == pytest.approx(0.45)


def test_a_run_without_a_result_is_partial(tmp_path):
    found = read(str(write(tmp_path / "run", row(), None))).run
    assert (found.status, found.outcome, found.started) == ("partial", "completed", START)
    assert found.gpu_hours is None
    assert "result.json" in found.note


def broken(kind, folder):
    if kind == "half-written":
        write(folder, row(), result())
        file = folder / "result.json"
        file.write_text(file.read_text()[:200])
    elif kind == "newer result":
        write(folder, row(), {"schema": "profile-train/result@9"})
    elif kind == "wrong types":
        write(folder, row(), dict.fromkeys(result(), 5) | {"schema": "profile-train/result@1", "advice": {"a": 1}})
    elif kind == "not finite":
        write(folder, row(), None)
        (folder / "result.json").write_text('{"schema": "profile-train/result@1", "phases": {"gc": NaN}}')
    elif kind == "deeply nested":
        write(folder, row(), None)
        (folder / "result.json").write_text("[" * 200_000)
    elif kind == "huge":
        write(folder, row(), None)
        os.truncate(os.open(folder / "result.json", os.O_CREAT | os.O_WRONLY), 2**40)
    elif kind == "link":
        write(folder, row(), None)
        (folder.parent / "secret").write_text(json.dumps(result()))
        (folder / "result.json").symlink_to(folder.parent / "secret")
    elif kind == "pipe":
        write(folder, row(), None)
        os.mkfifo(folder / "result.json")
    elif kind == "no store":
        folder.mkdir()
        (folder / "run-a.db").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    elif kind == "empty":
        folder.mkdir()
        (folder / "run-a.db").touch()
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("half-written", "partial"),
        ("newer result", "partial"),
        ("wrong types", "complete"),
        ("not finite", "partial"),
        ("deeply nested", "partial"),
        ("huge", "partial"),
        ("link", "partial"),
        ("pipe", "partial"),
        ("no store", "unreadable"),
        ("empty", "unreadable"),
    ],
)
def test_a_broken_or_hostile_run_becomes_a_row(tmp_path, kind, status):
    found = read(broken(kind, tmp_path / "run")).run
    assert found.status == status
    assert bool(found.note) == (status != "complete")


def test_hostile_text_and_numbers_are_bounded(tmp_path):
    long = "<script>\0" + "x" * 10_000
    store = write(tmp_path / "hostile", row(host="h"), None) / "run-h.db"
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        values = long, json.dumps([long]), 1e300, -5.0
        connection.execute("UPDATE runs SET host = ?, command = ?, started_at = ?, duration = ?", values)
    made = read(str(tmp_path / "hostile")).run
    assert made.day != ""
    assert made.duration_s is None
    assert len(made.host) <= TEXT
    assert len(made.command) <= TEXT
    assert "\0" not in made.command


def test_links_to_folders_are_not_followed(tmp_path):
    write(tmp_path / "outside/run", row(), result())
    write(tmp_path / "runs/deep/run", row(1), result())
    write(tmp_path / "runs/deep/run/trials/1", row(2), result())
    (tmp_path / "runs/link").symlink_to(tmp_path / "outside")
    (tmp_path / "runs/deep/loop").symlink_to(tmp_path / "runs")
    assert list(find(str(tmp_path / "runs"))) == [str(tmp_path / "runs/deep/run")]


@pytest.mark.parametrize(
    ("command", "cwd", "project", "name"),
    [
        (("train.py",), "/home/ann/vision", "vision", "train.py"),
        (("train.py",), "/home/ann/vision/cls", "vision", "cls/train.py"),
        (("/data/bob/vision/cls/train.py",), "/", "vision", "cls/train.py"),
        (("torchrun", "--nproc-per-node", "8", "cls/train.py"), "/x/vision", "vision", "cls/train.py"),
        (("/a/b/train.py",), "/", None, "train.py"),
        (("python", "-m", "package.train"), "/", None, "package.train"),
        ((), "/", None, "?"),
    ],
)
def test_runs_of_one_script_share_its_name(command, cwd, project, name):
    assert script_of(command, cwd, project) == name
