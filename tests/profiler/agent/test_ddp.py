"""What the agent reports about DistributedDataParallel, in real programs; with a single rank where that suffices."""

from dataclasses import fields

import pytest
from programs import COMMAND, ENDS_GROUP, ON_RANKS, TORCH
from torch.distributed import is_gloo_available

from profiler.schema import DdpFact, Place

pytestmark = pytest.mark.skipif(not is_gloo_available(), reason="torch was built without gloo")

BEGIN = (
    ENDS_GROUP
    + TORCH
    + """
import contextlib, sys, tempfile
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
torch.manual_seed(0)

def group():
    dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)

def train(model, steps=30, k=4, last=lambda model, i, k: contextlib.nullcontext()):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        for i in range(k):
            with last(model, i, k):
                loss = model(torch.randn(4, 8)).square().mean()
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())

def no_sync(model, i, k):
    return model.no_sync() if i < k - 1 else contextlib.nullcontext()

def assigned(model, i, k):
    model.require_backward_grad_sync = i == k - 1
    return contextlib.nullcontext()

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
"""
)
BYTES = 4 * (8 * 16 + 16 + 16 + 1)
# Passes before the roots are known, which are not counted.
WATCHED = 3


@pytest.fixture
def run_ddp(script, run_plain, run_profiled):
    """Return a function that runs a program with and without the profiler, checks that it prints the same, and returns
    its path and DdpFacts."""

    def run(text):
        path = script(BEGIN + text)
        plain, profiled = run_plain(path), run_profiled(path)
        assert (plain.status, plain.out) == (profiled.status, profiled.out) == (0, plain.out), profiled.err.decode()
        assert not profiled.problems.keys() - {"nvml"}
        return path, profiled.facts("ddp")

    return run


@pytest.mark.parametrize(("last", "reduced"), [("", 4), (", last=no_sync", 1), (", last=assigned", 1)])
def test_distinguishes_passes_that_reduce_from_others(run_ddp, last, reduced):
    path, (fact,) = run_ddp(f"group()\nmodel = DistributedDataParallel(net)\ntrain(model{last})\n")
    steps = 30 - WATCHED
    assert (fact.steps, fact.passes, fact.reduced) == (steps, 4 * steps, reduced * steps)
    line = path.read_text().splitlines().index("model = DistributedDataParallel(net)") + 1
    assert fact.place == Place(file=str(path), line=line)
    assert (fact.backend, fact.gradient_bytes, fact.dtypes, fact.comm_hook) == ("gloo", BYTES, ("float32",), None)
    assert (fact.bucket_cap, fact.buckets) == (25 * 2**20, 1)
    assert (fact.gradient_as_bucket_view, fact.find_unused_parameters) == (False, False)


def test_ddp_settings_and_comm_hooks_are_reported(run_ddp):
    _, (fact,) = run_ddp("""
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
group()
net[0].weight.requires_grad = False
model = DistributedDataParallel(net, bucket_cap_mb=1, gradient_as_bucket_view=True, find_unused_parameters=True)
model.register_comm_hook(None, fp16_compress_hook)
train(model)
""")
    assert fact.bucket_cap == 2**20
    assert (fact.gradient_as_bucket_view, fact.find_unused_parameters) == (True, True)
    assert fact.comm_hook == "fp16_compress_hook"
    assert fact.gradient_bytes == BYTES - 4 * 8 * 16


def test_averages_torch_timings_since_counting_began(run_ddp):
    _, (fact,) = run_ddp("group()\nmodel = DistributedDataParallel(net)\ntrain(model, steps=250, k=1)\n")
    # torch reports a pass at the next one. Of its samples, passes 1 and 2 come before the counting; 3 to 10, 100 and
    # 200 after.
    assert fact.samples == 10
    assert 0 < fact.overlap <= fact.communication < 1
    assert 0 < fact.compute < 1


def test_optimizer_step_in_communication_hook_does_not_deadlock(run_ddp):
    """While the hook runs, torch holds the lock that its logger takes: a query from there would wait forever."""
    _, (fact,) = run_ddp("""
import time
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
group()
other = torch.nn.Parameter(torch.zeros(1))
other.grad = torch.ones(1)
inner = torch.optim.SGD([other], lr=0.1)
def hook(state, bucket):
    inner.step()
    return allreduce_hook(state, bucket)
model = DistributedDataParallel(net)
model.register_comm_hook(None, hook)
def last(model, i, k):
    time.sleep(0.02)  # in all long enough for several looks
    return contextlib.nullcontext()
train(model, steps=80, k=1, last=last)
""")
    assert fact.comm_hook == "hook"


def test_passes_outside_training_are_not_counted(run_ddp):
    _, (fact,) = run_ddp("""
group()
model = DistributedDataParallel(net)
def last(model, i, k):
    model.eval()
    model(torch.ones(4, 8))
    model.train()
    with torch.no_grad(): model(torch.ones(4, 8))
    return contextlib.nullcontext()
train(model, last=last)
""")
    assert fact.passes == 4 * (30 - WATCHED)


def test_passes_are_counted_inside_torch_compile(run_ddp):
    _, (fact,) = run_ddp("""
group()
model = torch.compile(DistributedDataParallel(net), backend="eager")
train(model, k=2, last=lambda model, i, k: no_sync(model._orig_mod, i, k))
""")
    steps = 30 - WATCHED
    assert (fact.steps, fact.passes, fact.reduced) == (steps, 2 * steps, steps)


def test_errors_and_copies_of_ddp_model_match_plain_run(run_ddp):
    """The printed output is compared: the frames of each traceback, except for torch's own line in a module's call."""
    run_ddp("""
import copy, io, traceback
def show(error):
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.endswith("modules/module.py"): print(frame.filename, frame.lineno)
group()
model = DistributedDataParallel(net)
train(model)
try: model(torch.ones(4, 9))
except RuntimeError as error: show(error)
try: DistributedDataParallel(nn.ReLU())
except RuntimeError as error: show(error)
buffer = io.BytesIO()
torch.save(model, buffer)
buffer.seek(0)
for other in (copy.deepcopy(model), torch.load(buffer, weights_only=False)):
    with torch.no_grad():
        for parameter in other.parameters(): parameter.zero_()
    print(other(torch.ones(1, 8)).item(), model(torch.ones(1, 8)).item())
print(DistributedDataParallel.__init__.__name__)
""")


def test_program_without_ddp_has_no_ddp_fact(run_ddp):
    assert run_ddp("train(net)\n")[1] == []


TWO = """
if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        plain = nn.Linear.forward
        def slow(self, x):
            import time; time.sleep(0.02)
            return plain(self, x)
        nn.Linear.forward = slow
    model = DistributedDataParallel(net)
    train(model, steps=20, k=1)
    del model  # it holds the group, whose threads must not outlive the interpreter: torch would abort
    dist.destroy_process_group()
"""


def test_wait_for_straggler_counts_as_communication_of_faster_rank(script, start, tmp_path):
    path = script(BEGIN + TWO)
    folder = tmp_path / "run"
    command = (*COMMAND, "--no-report", "--no-windows", "--out", folder, *ON_RANKS, 2, path)
    ran = start(*command, folder=folder).finish()
    assert ran.status == 0
    ranks = {process.pid: process.rank for process in ran.ranks}
    facts = {ranks[fact.pid]: fact.body for fact in ran.tables.facts if fact.kind == "ddp"}
    assert facts.keys() == {0, 1}
    assert facts[0]["communication"] - facts[0]["overlap"] > 0.03, "two layers of 20 ms that rank 1 is behind"
    assert facts[0]["communication"] > facts[1]["communication"]
    for body in facts.values():
        assert 3 <= body["samples"] <= 8, "of passes 3 to 10, those that a look was in time for"
        assert body.keys() - {"kind", "t"} <= {field.name for field in fields(DdpFact)}
