"""Tuning of real programs, interrupted and continued."""

from __future__ import annotations

import json
import signal
import sys

import psutil
import pytest
from programs import COMMAND, PATIENCE, ROOT, TORCH, wait_until

from advisor.judging.verdict import Verdict
from advisor.rules.base import Safety
from advisor.verify import kept
from advisor.verify.trials import TrialChoices
from advisor.verify.tuning import tune
from profiler.errors import ProfilerError
from profiler.trial import Program

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Each sample of the batch takes 10 ms in the training process, and IN_WORKER s in a worker. That is so much more than
# the rest of the step that two processes of each distinguish them even on a busy machine.
STARVED = (
    TORCH
    + """
import time, torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

class Slow(Dataset):
    def __len__(self): return 8000
    def __getitem__(self, index):
        time.sleep(0.01 if get_worker_info() is None else IN_WORKER)
        return torch.full((64,), index / 8000)

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loader = DataLoader(Slow(), batch_size=8)
    for batch in loader:
        loss = (model(batch) + 1).square().mean()
        time.sleep(0.01)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
)

HOW = TrialChoices(allowed=(Safety.EXACT,), processes=2)
OPTIONS = ("--yes", "--repeats", "2", "--profile-steps", "80", "--out", "tuning")


@pytest.fixture
def tuning(script, start):
    """Start tuning a program; return the running command and its folder."""

    def begin(in_worker):
        path = script(STARVED.replace("IN_WORKER", str(in_worker)), "project/train.py")
        running = start(*COMMAND, "tune", *OPTIONS, path.name, cwd=path.parent, env={"PYTHONPATH": str(ROOT)})
        return running, path.parent / "tuning"

    return begin


def recordings(folder):
    """Return the recordings of processes that ended, with their times."""
    return {path.parent: path.stat().st_mtime_ns for path in folder.glob("**/ended")}


def ended(running):
    """Wait for the end, with time for several processes in turn that each import torch."""
    running.process.wait(5 * PATIENCE)
    return running.finish()


def children(running):
    return psutil.Process(running.process.pid).children(recursive=True)


@pytest.mark.slow
def test_interrupted_tuning_continues_to_completion(tuning):
    running, folder = tuning(0.01)
    wait_until(lambda: len(recordings(folder)) == 2, "the first process of a trial has ended")
    its = children(running)
    running.send(signal.SIGINT)
    ran = ended(running)
    assert ran.status == 130
    assert b"run the same command again to continue" in ran.err
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in its)
    first = recordings(folder)

    running, _ = tuning(0.01)
    wait_until(lambda: (folder / "trials-1/data-workers-zero-55/with-1/recording.json").exists(), "the next has begun")
    its = children(running)
    running.send(signal.SIGKILL)
    running.finish()
    wait_until(lambda: not any(c.is_running() and c.status() != psutil.STATUS_ZOMBIE for c in its), "it ends alone")

    running, _ = tuning(0.01)
    ran = ended(running)
    assert ran.status == 0, ran.err
    assert first.items() <= recordings(folder).items()
    for line in (b"Profile 1: the program as it is", b"  run 1 of 4: without", b"Profile 2: with data-workers-zero"):
        assert line in ran.err

    tuned = tomllib.loads((folder / "tuned.toml").read_text())
    (change,) = tuned["change"]
    assert change["rule"] == "data-workers-zero"
    assert change["settings"]["file"] == str(folder.parent / "train.py")
    assert tuned["step_time_after"] < tuned["step_time_before"]
    assert "num_workers=" in (folder / "tuning.md").read_text()

    tried = kept.read(folder / "profile-2")["data-workers-zero"]
    assert tried.applied
    assert tried.verdict.is_kept
    assert tried.losses_agree
    assert '<section id="applied">' in (folder / "profile-2/report.html").read_text()
    assert json.loads((folder / "profile-2/result.json").read_text())["steps"]["count"] == 80


@pytest.mark.slow
def test_harmful_change_is_not_kept(tuning):
    running, folder = tuning(0.4)
    ran = ended(running)

    assert ran.status == 0, ran.err
    assert b"not kept: data-workers-zero. Harmful here" in ran.err
    assert "change" not in tomllib.loads((folder / "tuned.toml").read_text())
    assert kept.read(folder / "profile-1")["data-workers-zero"].verdict is Verdict.HARMFUL
    assert [path.name for path in folder.glob("profile-*") if path.is_dir()] == ["profile-1"]


class Silent:
    """Messages that fail the test, because nothing may run."""

    def __getattr__(self, name):
        raise AssertionError(name)


def test_a_folder_of_another_program_is_refused(tmp_path):
    note = {"schema": "profile-train/tuning@1", "command": ["other.py"], "cwd": str(tmp_path)}
    (tmp_path / "tuning.json").write_text(json.dumps(note))

    with pytest.raises(ProfilerError, match="another program"):
        tune(Program(words=("train.py",), cwd=str(tmp_path)), tmp_path, HOW, Silent())


@pytest.mark.parametrize("text", ["", "[]", "\xff"])
def test_unreadable_note_counts_as_another_program(tmp_path, text):
    (tmp_path / "tuning.json").write_text(text, encoding="latin-1")

    with pytest.raises(ProfilerError, match="another program"):
        tune(Program(words=("train.py",), cwd=str(tmp_path)), tmp_path, HOW, Silent())


def test_a_folder_with_something_else_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()

    with pytest.raises(ProfilerError, match="does not contain a tuning"):
        tune(Program(words=("train.py",), cwd=str(tmp_path)), tmp_path, HOW, Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_missing_program_is_reported_before_anything_runs(start, tmp_path):
    ran = start(*COMMAND, "tune", *OPTIONS, "gone.py", env={"PYTHONPATH": str(ROOT)}).finish()

    assert ran.status == 1
    assert b"There is no script 'gone.py' here." in ran.err
    assert not (tmp_path / "tuning").exists()
