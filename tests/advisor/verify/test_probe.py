"""What is tried after a run's end, and for which runs."""

from dataclasses import replace

import pytest
from programs import TORCH

import advisor.verify.probe
from advisor.metrics.base import Metrics
from advisor.metrics.threads import thread_gain
from advisor.rules import all_rules
from advisor.runs.load import load
from advisor.verify.probe import probe
from profiler.recorder import threads
from profiler.schema import MatmulFact

TRAINS = (
    TORCH
    + """
import sys
import torch
if len(sys.argv) > 1: torch.set_num_threads(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(30):
    for _ in range(5): loss = model(torch.ones(64, 256)).sum()
    loss.backward()
    optimizer.step()
"""
)


@pytest.fixture
def tried(monkeypatch):
    """Return what was requested. The answer is that two threads are three times as fast as one."""
    asked = []

    def measure(process, matmul, numbers):
        asked.append(((matmul.rows, matmul.inputs, matmul.outputs), tuple(numbers)))
        return {number: 0.03 if number == 1 else 0.01 for number in numbers}

    monkeypatch.setattr(threads, "measure", measure)
    return asked


@pytest.fixture
def long(monkeypatch):
    """Accept short runs, because runs in tests are short."""
    monkeypatch.setattr(advisor.verify.probe, "MIN_DURATION", 0.0)


def test_thread_count_from_environment_is_compared_with_others(run_profiled, script, tried, monkeypatch, long):
    ran = run_profiled(script(TRAINS), env={"OMP_NUM_THREADS": "1"})
    if ran.run.cores < 2:
        pytest.skip("needs two cores")
    notes = []

    probe(ran.folder, [replace(rule, off="a file") for rule in all_rules()], lambda text: None)
    assert not tried  # no rule needs it

    probe(ran.folder, all_rules(), notes.append)

    ((product, numbers),) = tried
    assert product == (64, 256, 256)
    assert numbers[:2] == (1, 2)
    assert len(notes) == 2
    assert Metrics(load(ran.folder))[thread_gain] == pytest.approx(3.0)

    for change in (
        {"duration": 19.0},
        {"outcome": "killed", "signal": 2, "exit_status": 130},
        {"matmul": MatmulFact(rows=8, inputs=64, outputs=64)},
    ):
        tried.clear()
        monkeypatch.setattr(advisor.verify.probe, "MIN_DURATION", 20.0)
        monkeypatch.setattr(advisor.verify.probe, "load", lambda folder, change=change: changed(load(folder), **change))
        probe(ran.folder, all_rules(), notes.append)
        assert not tried, change


def changed(profile, matmul=None, **fields):
    """Return the profile with this largest matmul and these fields; otherwise it is long enough."""
    (rank,) = profile.ranks
    (run,) = profile.runs
    rank = replace(rank, matmul=matmul or rank.matmul)
    return replace(profile, ranks=(rank,), runs=(replace(run, **{"duration": 60.0, **fields}),))


def test_thread_count_set_by_program_is_not_probed(run_profiled, script, tried, long):
    ran = run_profiled(script(TRAINS), "1", env={"OMP_NUM_THREADS": "1"})

    probe(ran.folder, all_rules(), lambda text: None)

    assert not tried
