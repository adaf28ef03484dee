"""Trials of real programs: they end by themselves, change what they are to change, and leave everything as it was."""

import hashlib
from pathlib import Path

import pytest
from programs import PATIENCE, Ran, alive

from profiler.errors import ProfilerError
from profiler.schema import TrialFact
from profiler.trial import Trial, run

TRAINS = """
import os, torch
from pathlib import Path
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.arange(800.0).view(100, 8) / 800), batch_size=4, shuffle=True)
    Path("log").open("a").write("begun")
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


@pytest.fixture
def tried(script, tmp_path):
    """Run a trial of a program that would train for long; gives back its recording."""
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
        trial = Trial(words=(str(path),), cwd=str(path.parent), out=str(out), **{"steps": 30, **settings})
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


def test_it_ends_after_its_steps_and_leaves_no_trace(tried):
    ran = tried()

    assert len(ran.steps) == 30
    assert ran.run.outcome == "completed"
    assert b"the end" not in ran.out
    (fact,) = ran.facts("trial")
    assert isinstance(fact, TrialFact)
    assert len(fact.losses) >= 30


def test_a_program_that_sets_no_seed_sees_the_same_batches_again(tried):
    assert losses(tried())[:30] == losses(tried())[:30]
    assert losses(tried(seed=1))[:30] != losses(tried())[:30]


def test_a_nudged_program_rounds_otherwise(tried):
    plain, nudged = losses(tried())[:30], losses(tried(nudged=True))[:30]

    assert nudged[:3] == plain[:3]
    assert nudged != plain
    assert nudged == pytest.approx(plain, rel=1e-4)


def test_a_program_that_ends_sooner_has_ended(tried):
    ran = tried(epochs=1, steps=50)

    assert len(ran.steps) == 25
    assert b"the end" in ran.out


def test_a_change_that_cannot_be_made_is_told(tried):
    ran = tried(changes=({"name": "loader", "settings": {"file": "train.py", "line": 1, "wrong": 2}},))

    (problem,) = ran.problems["trial"]
    assert problem.startswith("TypeError: ")
    assert "wrong" in problem


def test_a_program_that_is_gone_is_told_in_a_sentence(tmp_path):
    trial = Trial(words=("gone.py",), cwd=str(tmp_path), out=str(tmp_path / "trial"), steps=3)

    with pytest.raises(ProfilerError, match=r"There is no script 'gone\.py' here\.") as caught:
        run(trial, PATIENCE)
    assert caught.value.remedy == "Check the path."


def test_a_folder_that_is_gone_is_told_in_a_sentence(tmp_path):
    trial = Trial(words=("train.py",), cwd=str(tmp_path / "gone"), out=str(tmp_path / "trial"), steps=3)

    with pytest.raises(ProfilerError, match="No such file or directory"):
        run(trial, PATIENCE)


LEAVES = """
import subprocess, sys, time
import torch
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
print(left.pid, flush=True)
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight])
while True:
    weight.square().sum().backward()
    optimizer.step()
"""


def test_what_the_program_leaves_running_is_ended_with_it(tried):
    """Also what has a session of its own, as torchrun's workers have."""
    ran = tried(LEAVES)

    assert len(ran.steps) == 30
    assert not alive(int(ran.out))


def test_what_has_no_patience_left_is_ended(script, tmp_path):
    path = script("import time\nprint('here', flush=True)\ntime.sleep(1000)\n", "project/train.py")
    trial = Trial(words=(str(path),), cwd=str(path.parent), out=str(tmp_path / "trial"), steps=3)

    assert run(trial, 5.0) is None
    assert Path(f"{trial.out}.log").read_text() == "here\n"
