"""Other versions of Python and torch than the tests' own: PROFILE_TRAIN_PYTHONS=/path/python:/path/python.

Each is the Python of an environment with torch >= 2.4 and without the profiler.
"""

import json
import os
import subprocess
import sys

import pytest
from programs import ROOT

PYTHONS = [path for path in os.environ.get("PROFILE_TRAIN_PYTHONS", "").split(os.pathsep) if path]
needs_pythons = pytest.mark.skipif(not PYTHONS, reason="PROFILE_TRAIN_PYTHONS lists no other Python")
each_python = pytest.mark.parametrize("python", PYTHONS or ["none"])

LOOPS = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Numbers(Dataset):
    def __len__(self): return 24
    def __getitem__(self, index): return torch.full((8,), index / 24)

def train(kind, epochs=1, **how):
    torch.manual_seed(0)
    model = net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    if kind == "compiled":
        model = torch.compile(net, backend="eager")
    kinds = {"lbfgs": torch.optim.LBFGS}
    optimizer = kinds.get(kind, torch.optim.AdamW)(net.parameters())
    scaler = torch.amp.GradScaler("cpu", enabled=kind == "scaled")
    loader = DataLoader(Numbers(), 4, **how)

    def loss_of(batch):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "scaled"):
            loss = model(batch).square().mean()
        scaler.scale(loss).backward()
        return loss

    for _ in range(epochs):
        for number, batch in enumerate(loader, 1):
            if kind == "lbfgs":
                loss = optimizer.step(lambda: loss_of(batch))
                continue
            loss = loss_of(batch)
            if kind != "accumulated" or number % 3 == 0:
                scaler.step(optimizer)
                scaler.update()
    print(kind, loss.item().hex(), flush=True)
    return model
"""
STEPS = {"loops": 240 + 6 + 2 + 6 + 6 + 6, "compiled": 60, "error": 60}
ENDS = {
    "loops": """
if __name__ == "__main__":
    train("plain", 40)
    for kind in ("lbfgs", "accumulated", "scaled"): train(kind)
    for method in ("fork", "spawn"): train(method, num_workers=1, multiprocessing_context=method)
""",
    "compiled": """
train("compiled", 10)
from torch._dynamo.utils import counters
print(dict(counters["graph_break"]), counters["stats"])
""",
    "error": "train('plain', 10)(torch.zeros(3, 3))",
}


@needs_pythons
@each_python
@pytest.mark.parametrize("kind", STEPS)
def test_other_python_and_torch_versions_are_recorded_unharmed(script, start, start_profiled, python, kind):
    program = script(LOOPS + ENDS[kind])
    options = ("--budget", "0.2") if kind == "loops" else ("--no-report", "--no-windows")
    plain = start(python, program).finish()
    profiled = start_profiled(python, program, options=options).finish()

    assert plain.status == (kind == "error"), plain.err.decode()
    assert (plain.status, plain.out) == (profiled.status, profiled.out)
    if kind == "error":
        assert plain.err == profiled.err
    assert not profiled.problems.keys() - {"nvml", "end"}
    assert len(profiled.steps) == STEPS[kind]
    assert len(profiled.workers) == 2 * (kind == "loops")
    assert bool(profiled.tables.windows) == (kind == "loops")
    (rank,) = profiled.ranks
    assert all(getattr(rank, name) for name in ("python", "torch"))


# ---- private names of torch ----

NAMES = {
    # Name: whether it may be missing while the program trains, because torch itself does not need it there.
    "_C._dynamo.eval_frame": False,
    "nn.Module._wrapped_call_impl": False,
    "nn.Module._compiled_call_impl": False,
    "optim.optimizer.register_optimizer_step_pre_hook": True,
    "optim.optimizer.register_optimizer_step_post_hook": True,
    "optim.Optimizer._patch_step_function": False,
    "utils.data.dataloader._BaseDataLoaderIter": False,
    "utils.data._utils.fetch._BaseDatasetFetcher": False,
    "utils.data._utils.fetch._MapDatasetFetcher": False,
    "utils.data._utils.fetch._IterableDatasetFetcher": False,
    "utils.data._utils.worker._worker_info": False,
    "utils.data.DataLoader.multiprocessing_context": False,
    "amp.autocast_mode.autocast": False,
    "amp.GradScaler": True,
    "utils.checkpoint._checkpoint_hook": True,
    "autograd._supported_activities": True,
    "autograd.ProfilerConfig": True,
    "autograd._prepare_profiler": True,
    "autograd._enable_profiler": True,
    "autograd._disable_profiler": True,
    "_C._profiler._ExperimentalConfig": True,
    "_C._profiler._RecordFunctionFast": True,
    "_C._autograd._profiler_enabled": True,
}
EITHER = ("_C._dynamo.eval_frame.set_code_exec_strategy", "_C._dynamo.eval_frame.skip_code")
"""The first since torch 2.7, the second before."""

WITHOUT = """
import functools, json, os, sys, tempfile
names, either = json.loads(sys.argv[1])
import torch, torch.utils.checkpoint
from torch.utils.data import DataLoader
import agent.start as start
torch.set_num_threads(1)

def owner_of(name):
    # Modules by their names: torch.optim forgets its `optimizer`.
    path, rest = "torch", name.split(".")[:-1]
    while rest and f"{path}.{rest[0]}" in sys.modules: path += "." + rest.pop(0)
    return functools.reduce(getattr, rest, sys.modules[path])

owners = {name: owner_of(name) for name in (*names, *either)}
missing = [name for name, owner in owners.items() if not hasattr(owner, name.rpartition(".")[2])]
harmed = []

def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        for batch in DataLoader(torch.ones(48, 4), 4):
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss.item()

expected = train()
for name in names:
    if name in missing: continue
    owner, last = owners[name], name.rpartition(".")[2]
    value = owner.__dict__[last]
    folder = tempfile.mkdtemp()
    settings = {"rings": folder, "windows": folder, "budget": 0.5}
    delattr(owner, last)
    try:
        start.begin_or_leave(settings)
    except Exception as error:
        harmed.append([name, repr(error)])
    if not names[name]: setattr(owner, last, value)
    try:
        if train() != expected: harmed.append([name, "another result"])
        start.end()
    except Exception as error:
        harmed.append([name, repr(error)])
    if names[name]: setattr(owner, last, value)
    if not any(entry.endswith(".ring") for entry in os.listdir(folder)): harmed.append([name, "nothing is recorded"])
print(json.dumps([missing, harmed]))
"""


@pytest.mark.parametrize("python", [sys.executable, *PYTHONS])
@pytest.mark.process
def test_private_torch_names_exist_and_none_is_required(tmp_path, python):
    """Each in turn is removed before the agent begins: the program trains as usual, and the rest is recorded."""
    ran = subprocess.run(
        [python, "-B", "-c", WITHOUT, json.dumps([NAMES, EITHER])],
        cwd=ROOT / "profiler",
        env=os.environ | {"TMPDIR": str(tmp_path), "KINETO_LOG_LEVEL": "6"},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    missing, harmed = json.loads(ran.stdout)

    assert set(missing) < set(EITHER)
    assert harmed == []
