"""What the agent does inside the training process never changes the program."""

import json
from pathlib import Path

from programs import NUMPY_TORCH, TORCH

SUPPORT = Path(__file__).parents[1] / "support"


def printed(ran):
    assert (ran.status, ran.err.decode()) == (0, "")
    return json.loads(ran.out.decode().splitlines()[-1])


def test_model_copies_pickles_and_transforms_match_plain_run(run_both):
    """Weights, losses and random state are the same, bit by bit, for every way to copy or transform a module."""
    plain, profiled = run_both(SUPPORT / "zoo.py")

    expected, found = printed(plain), printed(profiled)
    assert len(expected) > 100
    assert {name: (value, found.get(name)) for name, value in expected.items() if found.get(name) != value} == {}
    assert len(profiled.steps) > 20  # it was recorded
    assert not profiled.problems.keys() - {"nvml", "recorder"}


DEEP = """
import json, sys, time
import torch

torch.set_num_threads(1)
frames = []

class Node(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.inner = Node(depth - 1) if depth else torch.nn.Linear(1, 1)
    def forward(self, x):
        return self.inner(x) * self.weight

def counted(module, args):
    frame, count = sys._getframe(), 0
    while frame is not None: frame, count = frame.f_back, count + 1
    frames.append(count)

for depth in (3, 30):
    model = Node(depth)
    list(model.modules())[-1].register_forward_pre_hook(counted)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(8):
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
print(json.dumps(frames))
"""


def test_deep_model_gets_no_extra_frame_per_level(script, run_both):
    plain, profiled = run_both(script(TORCH + DEEP))

    added = [more - less for less, more in zip(printed(plain), printed(profiled), strict=True)]
    assert len(added) == 16
    assert max(added) <= 2
    assert sum(step.forward is not None for step in profiled.steps) >= 14  # the second model is found after a step


LOOKS = """
import inspect, json
import torch

torch.set_num_threads(1)
found = []
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    found.append([name for name, _ in inspect.getmembers(model, inspect.ismethod)] + [model._compiled_call_impl])
print(json.dumps(found))
"""


def test_listed_model_methods_match_plain_run(script, run_both):
    plain, profiled = run_both(script(TORCH + LOOKS))

    assert printed(plain) == printed(profiled)
    assert len([step for step in profiled.steps if step.forward is not None]) == 8


MOCKS = """
import json, time
from unittest import mock
import torch

NAMES = ("builtins.open", "io.open", "json.dumps", "time.sleep", "os.path.isdir", "os.path.getsize") + tuple(
    f"os.{name}" for name in ("open", "read", "write", "close", "unlink", "rename", "kill", "symlink", "stat"))
torch.set_num_threads(1)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
mocks = [mock.patch(name) for name in NAMES]
made = [each.start() for each in mocks]
end = time.time() + 1.5
while time.time() < end:
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
called = [name for name, each in zip(NAMES, made) if each.called]
for each in mocks: each.stop()
print(json.dumps(called))
"""


def test_functions_mocked_by_program_are_not_called(script, start_profiled):
    profiled = start_profiled(script(TORCH + MOCKS), options=("--no-report", "--budget", "0.5")).finish()

    assert printed(profiled) == []
    assert profiled.tables.windows
    assert profiled.facts("output")


def test_agent_calls_no_user_code(script, start_plain, start_profiled):
    """Samplers, datasets, batches, models, tensors, optimizers, modes and scalers count the calls to them. At the end
    the random state is as without us, and no call had more than two of our frames below it."""
    program = script(NUMPY_TORCH + "\n" + (SUPPORT / "counted.py").read_text())
    expected = start_plain(program)
    profiled = start_profiled(program, options=("--no-report", "--budget", "0.5")).finish()  # with windows
    expected, found = printed(expected.finish()), printed(profiled)

    before, now = expected.pop("depths"), found.pop("depths")
    assert before.keys() == now.keys() == {"dataset", "collate", "forward", "backward", "closure"}
    added = [more - less for name in before for less, more in zip(before[name], now[name], strict=True)]
    assert max(added) <= 2

    calls, counted = expected.pop("calls"), found.pop("calls")
    assert {name: (count, counted.get(name, 0)) for name, count in calls.items() if counted.get(name) != count} == {}
    assert counted.keys() == calls.keys()
    assert found == expected

    assert len(profiled.steps) > 20  # it was recorded
    assert not profiled.problems.keys() - {"nvml", "recorder"}
    sized = {fact.name: fact.sized for fact in profiled.facts("model")}
    assert (sized["Wrapped"], sized["Open"], sized["Subclassed"]) == (False, True, True)
    assert {fact.sized for fact in profiled.facts("optimizer")} == {False}  # its groups are a property
    assert {fact.length for fact in profiled.facts("loader") if fact.sampler != "SequentialSampler"} == {None}
