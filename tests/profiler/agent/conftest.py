"""Trials of real loops, with changes."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from programs import PATIENCE, Ran

from profiler.trial import TrialProcess, run


@dataclass(frozen=True)
class Tried:
    """A completed trial."""

    ran: Ran

    @property
    def seen(self):
        """Return what the program, or each of its ranks, printed about itself in lines "seen: {...}"."""
        lines = self.ran.out.decode().splitlines()
        return [json.loads(line.partition("seen: ")[2]) for line in lines if "seen: " in line]

    @property
    def losses(self):
        """Return the losses of each rank."""
        ranks = {process.pid: process.rank for process in self.ran.ranks}
        facts = [fact for fact in self.ran.tables.facts if fact.kind == "trial"]
        last = {ranks[fact.pid]: fact.body["losses"] for fact in sorted(facts, key=lambda fact: fact.time)}
        return [last[rank] for rank in sorted(last)]

    @property
    def failed(self):
        """Return why the trial failed, if it did."""
        return self.ran.problems["trial"]

    @property
    def codes(self):
        """Return the codes of the trial's problems."""
        return {problem.code for problem in self.ran.tables.problems if problem.source == "trial"}


@pytest.fixture
def tried(script, tmp_path):
    """Return a function that runs a program for some steps, with changes given as (name, settings)."""
    count = 0

    def begin(text, *changes, launcher=(), steps=30):
        nonlocal count
        count += 1
        path = script(text, "project/train.py")
        out = tmp_path / f"trial-{count}"
        made = tuple({"name": name, "settings": settings} for name, settings in changes)
        trial = TrialProcess(
            words=(*launcher, str(path)), cwd=str(path.parent), out=str(out), steps=steps, changes=made
        )
        assert run(trial, PATIENCE) == out
        return Tried(Ran(0, Path(f"{out}.log").read_bytes(), b"", out))

    return begin


class Clock:
    """A clock that a test sets."""

    now = 0

    def __call__(self):
        return self.now


@pytest.fixture
def set_clock(monkeypatch):
    """Return a function that replaces a module's clock with one that the test sets, and returns it."""

    def replace(module):
        clock = Clock()
        monkeypatch.setattr(module, "clock", clock)
        return clock

    return replace
