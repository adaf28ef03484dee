"""What is tried after a run's end, and of which runs."""

from dataclasses import replace

import pytest

from advisor.load import load
from advisor.metrics.base import Metrics
from advisor.metrics.threads import thread_gain
from advisor.probe import probe
from advisor.rules import all_rules
from profiler.recorder import threads

TRAINS = """
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


@pytest.fixture
def tried(monkeypatch):
    """What was asked for. The answer: two threads are three times as fast as one."""
    asked = []

    def measure(process, matmul, numbers):
        asked.append(((matmul.rows, matmul.inputs, matmul.outputs), tuple(numbers)))
        return {number: 0.03 if number == 1 else 0.01 for number in numbers}

    monkeypatch.setattr(threads, "measure", measure)
    return asked


def test_threads_by_the_environment_are_compared_with_others(run_profiled, script, tried):
    ran = run_profiled(script(TRAINS), env={"OMP_NUM_THREADS": "1"})
    if ran.run.cores < 2:
        pytest.skip("needs two cores")

    probe(ran.folder, all_rules(), lambda text: None)

    ((product, numbers),) = tried
    assert product == (64, 256, 256)
    assert numbers[:2] == (1, 2)
    assert Metrics(load(ran.folder))[thread_gain] == pytest.approx(3.0)


def test_threads_that_the_program_chose_are_left_alone(run_profiled, script, tried):
    ran = run_profiled(script(TRAINS), "1", env={"OMP_NUM_THREADS": "1"})

    probe(ran.folder, all_rules(), lambda text: None)

    assert not tried


def test_what_no_rule_will_ask_for_is_not_tried(run_profiled, script, tried):
    ran = run_profiled(script(TRAINS), env={"OMP_NUM_THREADS": "1"})

    probe(ran.folder, [replace(rule, off="a file") for rule in all_rules()], lambda text: None)

    assert not tried
