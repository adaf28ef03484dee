"""Trials of real programs: they end by themselves, make their changes, and leave everything else as it was."""

import hashlib
import io
import json
import shutil
import signal
import subprocess
import sys
from ast import literal_eval
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from programs import PATIENCE, TORCH, Ran

from profiler.errors import ProfilerError
from profiler.recorder import folder as run_folder
from profiler.schema import TrialFact
from profiler.trial import _MAIN, TrialProcess, _discard, _keep_log, _kept_offline, _locked, _scratch_folder, main, run

TRAINS = (
    TORCH
    + """
import os, torch
from pathlib import Path
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.arange(800.0).view(100, 8) / 800), batch_size=4, shuffle=True)
    Path("log").open("a").write("begun")
    print({name: os.environ.get(name) for name in ("WANDB_MODE", "SWANLAB_MODE", "HF_HUB_OFFLINE")})
    Path("data").unlink()
    for epoch in range(EPOCHS):
        for (batch,) in loader:
            loss = model(batch).square().mean() + 0.01
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.save(model.state_dict(), "weights.pt")
    print("the end")
"""
)


@pytest.fixture
def tried(script, tmp_path):
    """Return a function that runs a trial of a long training program, and returns its recording."""
    (tmp_path / "project").mkdir()
    count = 0

    def begin(text=TRAINS, epochs=1000, **settings):
        nonlocal count
        count += 1
        path = script(text.replace("EPOCHS", str(epochs)), "project/train.py")
        (path.parent / "log").write_text("old")
        (path.parent / "data").write_text("data")
        before = content(path.parent)
        out = tmp_path / f"trial-{count}"
        trial = TrialProcess(words=(str(path),), cwd=str(path.parent), out=str(out), **{"steps": 30, **settings})
        assert run(trial, PATIENCE) == out
        assert content(path.parent) == before
        return Ran(0, Path(f"{out}.log").read_bytes(), b"", out)

    return begin


def content(folder):
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


def losses(ran):
    (fact,) = ran.facts("trial")
    return fact.losses


def test_trial_ends_after_its_steps_and_leaves_no_trace(tried):
    ran = tried()

    assert len(ran.steps) == 30
    assert ran.run.outcome == "completed"
    assert b"the end" not in ran.out
    assert literal_eval(ran.out.decode()) == {"WANDB_MODE": "offline", "SWANLAB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
    (fact,) = ran.facts("trial")
    assert isinstance(fact, TrialFact)
    assert len(fact.losses) >= 30


@pytest.mark.parametrize(("how", "hub"), [({}, True), ({"network": True}, False), ({"in_place": True}, False)])
def test_trackers_stay_offline_in_every_trial_mode(how, hub):
    kept = _kept_offline(TrialProcess(words=("train.py",), cwd="/", out="/out", steps=1, **how))

    assert ("HF_HUB_OFFLINE" in kept) is hub
    assert kept["WANDB_MODE"] == kept["SWANLAB_MODE"] == kept["NEPTUNE_MODE"] == "offline"
    assert kept["MLFLOW_TRACKING_URI"] == "file:///out/mlruns"


def test_unseeded_program_sees_same_batches_in_every_trial(tried):
    assert losses(tried())[:30] == losses(tried())[:30]
    assert losses(tried(seed=1))[:30] != losses(tried())[:30]


def test_nudged_trial_differs_only_by_rounding(tried):
    plain, nudged = losses(tried())[:30], losses(tried(nudged=True))[:30]

    assert nudged[:3] == plain[:3]
    assert nudged != plain
    assert nudged == pytest.approx(plain, rel=1e-4)


def test_program_shorter_than_trial_runs_to_its_end(tried):
    ran = tried(epochs=1, steps=50)

    assert len(ran.steps) == 25
    assert b"the end" in ran.out


def test_change_that_cannot_be_made_is_reported(tried):
    ran = tried(changes=({"name": "loader", "settings": {"file": "train.py", "line": 1, "wrong": 2}},))

    (problem,) = ran.problems["trial"]
    assert problem.startswith("TypeError: ")
    assert "wrong" in problem


@pytest.mark.process
def test_missing_script_gives_message_and_remedy(tmp_path):
    trial = TrialProcess(words=("gone.py",), cwd=str(tmp_path), out=str(tmp_path / "trial"), steps=3)

    with pytest.raises(ProfilerError, match=r"There is no script 'gone\.py' here\.") as caught:
        run(trial, PATIENCE)
    assert caught.value.remedy


@pytest.mark.process
def test_missing_folder_gives_message(tmp_path):
    trial = TrialProcess(words=("train.py",), cwd=str(tmp_path / "gone"), out=str(tmp_path / "trial"), steps=3)

    with pytest.raises(ProfilerError, match="No such file or directory"):
        run(trial, PATIENCE)


LEAVES = (
    TORCH
    + """
import os, signal, subprocess, sys, time
import torch
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", __file__], start_new_session=True)
try:
    os.kill(int(open("pid").read()), signal.SIGKILL)
except ProcessLookupError:
    print(os.getpid(), flush=True)
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight])
while True:
    weight.square().sum().backward()
    optimizer.step()
"""
)


def test_trial_processes_are_isolated_and_end_with_it(tried, tmp_path):
    """A PID file names no process of the trial, the recording has the program's own PIDs, and processes that the
    program leaves running end with it, even in their own session like torchrun's workers."""
    with subprocess.Popen(["sleep", "1000"]) as outside:
        (tmp_path / "project/pid").write_text(str(outside.pid))
        ran = tried(LEAVES)
        assert outside.poll() is None
        outside.kill()

    assert len(ran.steps) == 30
    (rank,) = ran.ranks
    assert int(ran.out) == rank.pid
    assert any(sample.rss for sample in ran.tables.host_samples), "the recorder finds them, too"
    left = [process for process in psutil.process_iter() if str(tmp_path / "project/train.py") in _words(process)]
    assert left == []


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.process
def test_trial_over_its_time_limit_is_ended(script, tmp_path):
    path = script("import time\nprint('here', flush=True)\ntime.sleep(1000)\n", "project/train.py")
    trial = TrialProcess(words=(str(path),), cwd=str(path.parent), out=str(tmp_path / "trial"), steps=3)

    assert run(trial, 5.0) is None
    assert Path(f"{trial.out}.log").read_text() == "here\n"
    assert not run_folder.is_running(Path(trial.out)), "it can be tried again at once"


@pytest.mark.process
def test_nothing_is_imported_from_the_callers_folder(tmp_path):
    (tmp_path / "psutil.py").write_text("open('ran', 'w')")
    command = [*_MAIN, "{}", tmp_path]
    refused = subprocess.run(command, capture_output=True, cwd=tmp_path, check=False)

    assert b"Trial" in refused.stderr, "it has come to its arguments"
    assert not (tmp_path / "ran").exists()


def test_scratch_folder_is_removed_with_unreadable_overlayfs_folders(tmp_path, monkeypatch):
    """A user other than root may not list such a folder, and rmtree fails there."""
    work = tmp_path / "scratch" / ".work-0" / "work"
    work.mkdir(parents=True, mode=0o000)
    work.chmod(0o000)
    real = shutil.rmtree

    def rmtree(path, **how):
        if not work.stat().st_mode & 0o700:
            raise PermissionError
        real(path, **how)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    _discard(str(tmp_path / "scratch"))
    assert not (tmp_path / "scratch").exists()


def test_unused_scratch_folders_are_removed(tmp_path):
    with _scratch_folder(tmp_path) as used:
        pass
    assert not Path(used).exists()

    (tmp_path / f"{Path(used).name}left/written-0").mkdir(parents=True)
    (tmp_path / f"{Path(used).name}left").chmod(0o700)
    with _scratch_folder(tmp_path) as first, _scratch_folder(tmp_path) as second:
        assert {path.name for path in tmp_path.iterdir()} == {Path(first).name, Path(second).name}
        assert _locked(first) is None


def test_killed_trial_is_not_running(tmp_path, monkeypatch):
    """The recorder is in its own PID namespace: only its last sign of life shows whether it is alive."""
    run_folder.write_note(tmp_path, run_folder.RecordingNote("", 0, 1, 0.0, 1, 0.0, where="another namespace"))
    assert run_folder.is_running(tmp_path)
    monkeypatch.setattr("profiler.trial._run", lambda *_: sys.exit(128 + signal.SIGKILL))
    monkeypatch.setattr("profiler.trial.end_children", lambda pid: None)
    trial = TrialProcess(words=("train.py",), cwd=str(tmp_path), out=str(tmp_path), steps=1)
    with pytest.raises(SystemExit):
        main(json.dumps(asdict(trial)), str(tmp_path / "scratch"))
    assert not run_folder.is_running(tmp_path)


def test_trial_log_contains_no_secrets(tmp_path):
    output = io.BytesIO(b"url postgres://u:Xy7-secret@h/db\nkey S3cr3tV4lue9xyz0\n" + b"x" * 20_000 + b"\xff\nthe end")
    _keep_log(output, tmp_path / "log", ("S3cr3tV4lue9xyz0",))
    kept = (tmp_path / "log").read_text()

    assert "Xy7-secret" not in kept
    assert "S3cr3t" not in kept
    assert kept.count("x") == 20_000
    assert kept.endswith("the end")
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0
