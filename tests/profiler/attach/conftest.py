"""Programs that train without the profiler until it attaches to them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import PATIENCE, TORCH

TRAINS = (
    TORCH
    + """
import gc, json, os, sys, threading, time
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
folder, steps = sys.argv[1], int(sys.argv[2])
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(), torch.nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 4))

def forever():
    loader = DataLoader(data, batch_size=4, shuffle=True)
    while True:
        yield from loader

def tell(number):
    "What hooks there are, and what they would leak."
    gc.collect()
    from torch.optim import optimizer as optimizers
    from torch.utils.data import dataloader
    iterators = [each for each in gc.get_objects() if issubclass(type(each), dataloader._BaseDataLoaderIter)]
    import logging, multiprocessing.util
    state = {
        "patched": [str(each.__module__) for each in (
            torch.nn.Module.__call__, torch.autograd.backward, torch.autograd.grad, torch.save, os.fsync,
            dataloader._BaseDataLoaderIter.__next__, dataloader.DataLoader.__iter__, logging.Handler.handle,
            torch.optim.Optimizer._patch_step_function, sys.excepthook, torch.set_num_threads,
        ) if "profile_train" in str(each.__module__) or hasattr(each, "__wrapped__")],
        "optimizer": len(optimizers._global_optimizer_pre_hooks) + len(optimizers._global_optimizer_post_hooks),
        "single": "__next__" in dataloader._SingleProcessDataLoaderIter.__dict__,
        "modules": sum("_compiled_call_impl" in type(each).__dict__ for each in model.modules()),
        "module": torch.nn.Module.__dict__["_compiled_call_impl"] is not None,
        "iterators": sorted(name for each in iterators for name in each.__dict__ if "profile" in name),
        "fetchers": [each for each in iterators if "fetch" in each._dataset_fetcher.__dict__] != [],
        "gc": len(gc.callbacks),
        "finders": len(sys.meta_path),
        "finalizers": len(multiprocessing.util._finalizer_registry),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "main": sorted({*vars(sys.modules["__main__"])} - {"__warningregistry__"}),
        "agents": sum(type(each).__name__ == "Agent" for each in gc.get_objects()),
        "rss": int(open("/proc/self/statm").read().split()[1]) * 4096,
        "loaded": len(sys.modules),
        "environment": sorted(os.environ),
    }
    with open(f"{folder}/state-{number}.new", "w") as file:
        json.dump(state, file)
    os.rename(f"{folder}/state-{number}.new", f"{folder}/state-{number}")

number = 0
for step, (x, y) in enumerate(forever()):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex(), flush=True)
    if step == steps:
        break
    if step == 10 and os.path.exists(f"{folder}/gated"):
        open(f"{folder}/waiting", "w").close()
        while not os.path.exists(f"{folder}/go"):
            time.sleep(0.001)
    if os.path.exists(f"{folder}/tell-{number}"):
        tell(number)
        number += 1
    if steps > 100_000:
        time.sleep(0.001)
"""
)


class Program:
    """A training program started without the profiler."""

    def __init__(self, folder, steps):
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self._number = 0
        self.output = (folder / "stdout").open("w+")
        self.errors = (folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINS, str(folder), str(steps)], stdout=self.output, stderr=self.errors
        )
        self.pid = self.process.pid

    def wait_for(self, what):
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < deadline
            assert self.process.poll() is None, self.said
            time.sleep(0.01)

    def trains(self):
        self.wait_for(lambda: (self.folder / "stdout").stat().st_size > 100)

    @property
    def lines(self):
        return (self.folder / "stdout").read_text().splitlines()

    @property
    def said(self):
        return (self.folder / "stderr").read_text()

    def state(self):
        """Return hooks and other state, reported by the program itself between two steps."""
        path = self.folder / f"state-{self._number}"
        (self.folder / f"tell-{self._number}").touch()
        self.wait_for(path.exists)
        self._number += 1
        return json.loads(path.read_text())

    def end(self):
        if self.process.poll() is None:
            os.kill(self.pid, 9)
        self.process.wait()
        self.output.close()
        self.errors.close()


@pytest.fixture
def started(tmp_path):
    programs = []

    def start(name="program", steps=10**9, *, gated=False):
        (tmp_path / name).mkdir()
        if gated:
            (tmp_path / name / "gated").touch()
        programs.append(Program(tmp_path / name, steps))
        return programs[-1]

    yield start
    for program in programs:
        program.end()


@pytest.fixture
def asked(request):
    """Skip unless slow tests were requested: these take minutes on a busy machine."""
    if "slow" not in request.config.option.markexpr:
        pytest.skip("slow test: run pytest -m slow")


@pytest.fixture
def may_trace():
    """Skip where the machine does not allow attaching to a process."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if os.uname().machine != "x86_64" or (scope.exists() and scope.read_text().strip() not in "01"):
        pytest.skip("this machine does not allow attaching to a process")
