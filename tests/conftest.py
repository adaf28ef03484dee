"""Start scripts plainly and under profile-train."""

import multiprocessing.util
import os
import platform
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from programs import COMMAND, TRAINS, Running

# Trials in tests must not affect predictions for programs on this machine, nor the other way around.
os.environ["PROFILE_TRAIN_CALIBRATION"] = os.devnull

# Only tests of the sampler turn it on: sampling would cost every other recording time.
os.environ["PROFILE_TRAIN_STACKS"] = "0"

# Without bytecode files, each of the hundreds of processes would compile this checkout again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without job control starts background processes with SIGINT and SIGQUIT ignored, nohup with SIGHUP, and
# children inherit that. They do not inherit a handler: it ends with exec.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else lambda *_: None)

TIERS = ("process", "browser", "fake_gpu", "slow", "foreign", "compare", "gpu")
STARTS = {"start", "tried", "started"}
"""Fixtures that start processes; other fixtures request them."""


def pytest_collection_modifyitems(items):
    """Mark each test with its tier."""
    for item in items:
        if STARTS & set(item.fixturenames):
            item.add_marker("process")
        if "browser" in item.fixturenames:
            item.add_marker("browser")
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            item.add_marker("unit")
    # Tests that take seconds come first: each worker then ends with short ones, and no other waits for it.
    items.sort(key=lambda item: item.get_closest_marker("unit") is not None)


@pytest.fixture(autouse=True)
def _units_start_no_process(request, monkeypatch):
    if request.node.get_closest_marker("unit") is None:
        return

    platform.platform()  # starts `uname -p`, and caches its output

    def refuse(*_, **__):
        raise AssertionError(
            "a unit test must not start a process: use a fixture that starts one, or mark the test `process`"
        )

    monkeypatch.setattr(subprocess.Popen, "_execute_child", refuse)
    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", refuse)
    for name in ("fork", "forkpty", "posix_spawn"):
        monkeypatch.setattr(os, name, refuse, raising=False)


@pytest.fixture
def script(tmp_path):
    """Write a program; return its path."""

    def write(text, name="train.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def start(tmp_path):
    """Start a command line unchanged; with `terminal`, in the foreground of a terminal of its own."""
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
    """Run a script plain and, at the same time, under profile-train."""

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
    """Write a program that has `torch`, `model`, `optimizer` and `train(steps, pause)`, and does `rest` with them."""

    def write(rest):
        path = tmp_path / "train.py"
        path.write_text(f"{TRAINS}\n{rest}\n")
        return path

    return write


@pytest.fixture(scope="session")
def browser():
    """Start a headless Chromium; tests open their own pages in it."""
    from browser import started

    driver = started()
    yield driver
    driver.quit()
