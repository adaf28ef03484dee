"""Which run is the latest, and how often to check for it."""

import os

import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Goals
from advisor.settings.own_rules import RuleSet
from advisor.watch import watching
from advisor.watch.watching import LiveRun, latest
from profiler.errors import ProfilerError
from profiler.schema import Stack


def run(folder, name, written):
    (folder / name).mkdir()
    store = folder / name / "run-h.db"
    store.touch()
    os.utime(store, (written, written))
    return folder / name


def test_the_run_that_was_written_last_is_the_latest(tmp_path):
    run(tmp_path, "20250101-000000-b", 100)
    newest = run(tmp_path, "20250101-000000-a", 200)
    (tmp_path / "20260101-000000-empty").mkdir()

    assert latest(tmp_path) == newest


def test_log_removed_meanwhile_is_ignored(tmp_path):
    """A dangling link is listed but has no status, like a removed log."""
    run(tmp_path, "20250101-000000-b", 100)
    newest = run(tmp_path, "20250101-000000-a", 200)
    (newest / "run-h.db-wal").symlink_to(tmp_path / "gone")

    assert latest(tmp_path) == newest


def test_ongoing_run_comes_first(tmp_path, monkeypatch):
    going = run(tmp_path, "a", 100)
    run(tmp_path, "b", 200)
    monkeypatch.setattr(watching.run_folder, "is_running", lambda folder: folder == going)

    assert latest(tmp_path) == going


@pytest.mark.parametrize("there", [True, False])
def test_without_a_run_it_says_what_to_do(tmp_path, there):
    with pytest.raises(ProfilerError, match="Start one, or name its folder"):
        latest(tmp_path if there else tmp_path / "none")


@pytest.mark.parametrize(("takes", "pause"), [(0.05, 0.95), (0.5, 4.5)])
def test_watching_uses_at_most_a_tenth_of_a_core(monkeypatch, tmp_path, takes, pause):
    clock = iter([0.0, 0.0, takes])
    monkeypatch.setattr(watching.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(watching, "load", lambda folder: None)
    monkeypatch.setattr(watching, "Metrics", lambda *_: None)
    monkeypatch.setattr(watching, "judge", lambda *_: None)
    monkeypatch.setattr(watching, "advised", lambda _: None)
    monkeypatch.setattr(watching, "snapshot", lambda *_: None)
    monkeypatch.setattr(LiveRun, "_note", lambda *_: None)
    looking = LiveRun(tmp_path, RuleSet(()), Goals())

    looking.look()

    assert looking.pause == pytest.approx(pause)


def test_newest_stacks_are_separate_once_there_are_enough(tmp_path):
    def look(samples):
        frames = (("/home/me/train.py", 9, "main", ""),)
        row = Stack(
            pid=1, id=0, role="rank", phase="other", steady=True, frames=frames, total=samples / 10, samples=samples
        )
        looking._note(metrics(rank(steps=steps(*[0.1] * 20), stacks=(row,))).profile)
        return looking._newest and looking._newest[0].samples

    looking = LiveRun(tmp_path, RuleSet(()), Goals())

    assert [look(5), look(40), look(45), look(60)] == [None, 40, 40, 20]
