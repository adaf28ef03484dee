"""Programs with several loops, each of which prints what it did; and what was recorded of each loop."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from programs import NUMPY_TORCH

from profiler.schema import BETWEEN, PHASES

BEGIN = (
    NUMPY_TORCH
    + """
import contextlib, json, os, sys, threading, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.set_num_threads(1)
torch.manual_seed(0)

SLEEP = 0.002

class Slow(Dataset):
    def __init__(self, samples): self.samples = samples
    def __len__(self): return self.samples
    def __getitem__(self, index):
        time.sleep(SLEEP)
        return torch.full((8,), index / 100)

class Model(nn.Module):
    def __init__(self, seconds=0.002, inputs=8, outputs=1):
        super().__init__()
        self.seconds = seconds
        self.layers = nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))
    def forward(self, x):
        time.sleep(self.seconds)
        return self.layers(x)

def made(seconds=0.002, lr=0.01):
    model = Model(seconds)
    return model, torch.optim.SGD(model.parameters(), lr=lr)

def update(model, optimizer, batch):
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()

def tell(part, **done):
    print(json.dumps({"part": part, **done}), flush=True)
"""
)


@dataclass(frozen=True)
class Part:
    """One loop of a program: what it printed about itself, and its recorded steps."""

    done: SimpleNamespace
    steps: list

    def total(self, quantity):
        return sum(getattr(step, quantity) or 0.0 for step in self.steps)

    def tagged(self, tag):
        return [position for position, step in enumerate(self.steps) if step.tags & tag]


@pytest.fixture
def loop(tmp_path):
    """Return a function that writes a program of BEGIN and the given parts, and returns its path."""

    def write(*parts, name="train.py"):
        path = tmp_path / name
        path.write_text("".join((BEGIN, *parts)))
        return path

    return write


@pytest.fixture
def parts():
    """Return a function that returns the loops of a run by name; it checks that the program ran unharmed and that the
    loops have all of its steps."""

    def split(ran, steps=None):
        steps = list(ran.steps if steps is None else steps)
        assert ran.status == 0
        assert not ran.err or (ran.folder / "report.md").exists()  # stderr is then the report's summary
        check(ran.steps)
        parts_done = [SimpleNamespace(**json.loads(line)) for line in ran.out.decode().splitlines()]
        assert sum(done.steps for done in parts_done) == len(steps)
        found = {}
        for done in parts_done:
            found[done.part] = Part(done, steps[: done.steps])
            del steps[: done.steps]
        return found

    return split


def check(steps):
    """Check that each step is partitioned into its phases, and that nothing is negative."""
    for step in steps:
        phases = [value for name in PHASES if (value := getattr(step, name)) is not None]
        between = [value for name in BETWEEN if (value := getattr(step, name)) is not None]
        assert min(phases + between) >= 0
        assert sum(phases) == pytest.approx(step.duration, rel=0.02, abs=1e-6)


@pytest.fixture
def judged():
    """Return a function that returns a run's result.json, and the advice in it above `info`."""

    def read(ran):
        result = json.loads((ran.folder / "result.json").read_text())
        return result, [advice["rule"] for advice in result["advice"] if advice["severity"] != "info"]

    return read
