"""Attach to a program that records itself with torch.profiler, including stacks.

The profiler keeps names as pointers into code objects: all code that ran while it recorded must still exist as it
writes.
"""

import json
import os
import subprocess
import sys

import pytest
from programs import TORCH, wait_until

from profiler.attach import inject
from profiler.attach.inject import Injector

pytestmark = pytest.mark.usefixtures("may_trace")

PROFILES = (
    TORCH
    + """
import os, sys, time
import torch
from torch.profiler import ProfilerActivity, profile
torch.set_num_threads(1)
folder = sys.argv[1]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def step():
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

def until(name):
    while not os.path.exists(os.path.join(folder, name)):
        step()
        time.sleep(0.02)

with profile(activities=[ProfilerActivity.CPU], with_stack=True) as trace:
    step()
    open(os.path.join(folder, "profiles"), "w").close()
    until("asked")
    # Fill the freed memory: names that were stored there would read as these.
    taken = [chr(0x100 + size % 50) * size for size in range(1, 200) for _ in range(200)]
    taken += [("<wrong %d>" % number).ljust(size) for size in range(8, 120) for number in range(100)]
trace.export_chrome_trace(os.path.join(folder, "trace.json"))
open(os.path.join(folder, "profiled"), "w").close()
until("end")
"""
)


@pytest.fixture
def program(tmp_path):
    (tmp_path / "train.py").write_text(PROFILES)
    process = subprocess.Popen([sys.executable, tmp_path / "train.py", tmp_path])
    wait_until((tmp_path / "profiles").exists, "the profiler")
    yield process
    process.kill()
    process.wait()


def begin(folder):
    folder.mkdir(exist_ok=True)
    settings = {"rings": str(folder), "windows": None, "budget": 0.01, "recorder": os.getpid()}
    return {"act": "begin", "settings": settings}


def names(folder):
    """Return file and name of the Python functions in the program's trace."""
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return {event["name"] for event in events if event.get("cat") == "python_function"}


@pytest.mark.process
def test_attaching_waits_for_profiler_end_and_corrupts_no_names(program, tmp_path, monkeypatch):
    monkeypatch.setitem(inject.PAUSES, "profiled", (0.2, 0.2))
    injector = Injector(program.pid)
    reasons = []

    def waits(why):
        reasons.append(why)
        if reasons.count(inject.REASONS["profiled"]) > 2:
            (tmp_path / "asked").touch()

    try:
        answer = injector.ask(begin(tmp_path / "rings"), 120.0, waits)
        injector.ask({"act": "end"}, 120.0)
    finally:
        injector.close()

    wait_until((tmp_path / "profiled").exists, "the trace")
    assert answer == {"state": "in"}
    assert (tmp_path / "asked").exists()
    modules = {name.partition("(")[0] for name in names(tmp_path) if name.endswith(": <module>")}
    assert modules == {"train.py", "<string>", "<profile-train>"}
    wrong = [name for name in names(tmp_path) if "<wrong" in name or not name.isascii()]
    assert [name for name in wrong if not name.startswith("torch/")] == []  # torch's imports leave some even without us
