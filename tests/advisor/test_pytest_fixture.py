"""The fixture, in a pytest session that trains a real program."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest
from programs import TORCH

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

TRAIN = (
    TORCH
    + """
import sys, time
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(float(sys.argv[2]))
"""
)

TEST = """
def test_speed(assert_training_performance):
    assert_training_performance(["train.py", "{steps}", "{pause}"], "baseline"{more})
"""

# Samples of other load on the cores are deleted: on a full machine, no program can be called slow.
UNSAMPLED = """
import contextlib, sqlite3
import profile_train_pytest

record = profile_train_pytest._record

def unsampled(command, folder, timeout):
    record(command, folder, timeout)
    (store,) = folder.glob("run-*.db")
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM host_samples")

profile_train_pytest._record = unsampled
"""


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "advisor" / "entry"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # an installed package would load the plugin, too
    pytester.makefile(".py", train=TRAIN)

    def test(steps=60, pause=0.02, *options, more=""):
        pytester.makepyfile(test_speed=TEST.format(steps=steps, pause=pause, more=more))
        return pytester.runpytest_subprocess("-p", "profile_train_pytest", "-p", "no:cacheprovider", "-rs", *options)

    return test


@pytest.mark.process
def test_a_program_is_judged_by_its_baseline(project, pytester):
    pytester.mkpydir("advisor")  # the project's packages with our names must stay its own
    pytester.mkpydir("profiler")
    project().stdout.fnmatch_lines(["*There is no baseline baseline. Store it: pytest --store-training-baselines"])
    project(60, 0.02, "--store-training-baselines").assert_outcomes(passed=1)

    project(60, 0.02, more=", slower=0.7").assert_outcomes(passed=1)
    _change(pytester, "DELETE FROM host_samples")
    pytester.makeconftest(UNSAMPLED)
    slow = project(45, 0.3, more=", slower=0.7")  # longer than load on a busy machine can make a step
    few = project(12, 0.02)
    _change(pytester, f"UPDATE runs SET cores_total = cores_total + {os.cpu_count()}")
    elsewhere = project(60, 0.02)

    slow.assert_outcomes(failed=1)
    slow.stdout.fnmatch_lines(["*lower: a * step takes * ms in B, * ms in A:*", "*Everything else*worse*"])
    few.assert_outcomes(failed=1)
    few.stdout.fnmatch_lines(["*Too few steps to tell*"])
    elsewhere.assert_outcomes(skipped=1)
    elsewhere.stdout.fnmatch_lines(["*another machine (machine: cores_total)*"])


@pytest.mark.process
def test_a_program_that_fails_says_why(project):
    failed = project("nonsense", 0.0, "--store-training-baselines")

    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*ValueError: invalid literal for int()*"])


def _change(pytester, statement):
    (store,) = (pytester.path / "baseline").glob("run-*.db")
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(statement)
