"""Start scripts plainly and under profile-train."""

import os
import sys
import textwrap
from pathlib import Path

import pytest
from programs import COMMAND, TRAINS, Running

# What the tests try says nothing of this machine's programs, and its programs nothing of what is tested.
os.environ["PROFILE_TRAIN_CALIBRATION"] = os.devnull


@pytest.fixture
def script(tmp_path):
    """Write a program; gives back its path."""

    def write(text, name="train.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def start(tmp_path):
    """Start a command line as it stands; with `terminal`, in the foreground of a terminal of its own."""
    started = []

    def begin(*words, cwd=tmp_path, env=None, stdin=b"", terminal=False, folder=None):
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PROFILE_TRAIN_AGENT")
        }
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        number = len(started)
        running = Running(
            [str(word) for word in words],
            cwd,
            tmp_path / f".out-{number}",
            tmp_path / f".err-{number}",
            environment | (env or {}),
            stdin,
            terminal,
            folder,
        )
        started.append(running)
        return running

    yield begin
    for running in started:
        running.clear()


@pytest.fixture
def start_plain(start):
    """Start a script with Python."""
    return lambda *words, **how: start(sys.executable, *words, **how)


@pytest.fixture
def start_profiled(start, tmp_path):
    """Start a script under profile-train, which only records it unless `options` say otherwise."""
    count = 0

    def begin(*words, options=("--no-report", "--no-windows"), out=None, **how):
        nonlocal count
        count += 1
        folder = out or tmp_path / f"run-{count}"
        return start(*COMMAND, *options, "--out", folder, *words, folder=folder, **how)

    return begin


@pytest.fixture
def run_plain(start_plain):
    return lambda *words, **how: start_plain(*words, **how).finish()


@pytest.fixture
def run_profiled(start_profiled):
    return lambda *words, **how: start_profiled(*words, **how).finish()


@pytest.fixture
def run_both(start_plain, start_profiled):
    """Run a script plainly and, beside it, under profile-train."""

    def run(*words, **how):
        plain, profiled = start_plain(*words, **how), start_profiled(*words, **how)
        return plain.finish(), profiled.finish()

    return run


@pytest.fixture
def report(start):
    """Make the report of a run folder again."""
    return lambda folder, *options: start(*COMMAND, "report", *options, folder).finish()


@pytest.fixture
def training(tmp_path):
    """A program that has `torch`, `model`, `optimizer` and `train(steps, pause)`, and does `rest` with them."""

    def write(rest):
        path = tmp_path / "train.py"
        path.write_text(f"{TRAINS}\n{rest}\n")
        return path

    return write
