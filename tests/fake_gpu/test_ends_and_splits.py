"""Step times of programs that end before their GPU does, and of models on two GPUs."""

from itertools import pairwise
from statistics import median

import pytest

from profiler.schema import PHASES, TAG_UNREACHED

NEAR = 0.03
STEPS = 24

LOOP = """
import sys
import torch
seconds, waits = float(sys.argv[1]), sys.argv[2] == "waits"
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x = torch.zeros(8, 64, device="cuda")
for _ in range(24):
    torch.cuda._sleep(round(seconds * 1e9))
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if waits:
    loss.item()
"""

SPLIT = """
import sys
import torch
class Spin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        torch.cuda._sleep(round(seconds * 1e9))
        return x.view_as(x)
    @staticmethod
    def backward(ctx, gradient):
        torch.cuda._sleep(round(2 * ctx.seconds * 1e9))
        return gradient, None
class Stage(torch.nn.Module):
    def __init__(self, device, seconds):
        super().__init__()
        self.device, self.seconds, self.layer = torch.device(device), seconds, torch.nn.Linear(64, 64).to(device)
    def forward(self, x):
        with torch.cuda.device(self.device):
            return Spin.apply(self.layer(x.to(self.device)), self.seconds)
stages = Stage("cuda:0", 0.02), Stage("cuda:1", 0.04)
whole = torch.nn.Sequential(*stages)
optimizer = torch.optim.SGD(whole.parameters(), 0.1)
x = torch.zeros(8, 64, device="cuda:0")
for _ in range(24):
    loss = (whole(x) if sys.argv[1] == "whole" else stages[1](stages[0](x))).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
loss.item()
"""


def periods(run, device=0, each=1):
    """Return the GPU's time from each step's first spin to the next step's, in seconds."""
    starts = [op.start for op in run.ops if "spin_kernel" in op.name and op.device == device][::each]
    assert len(starts) == STEPS
    return [(after - before) * 1e-9 for before, after in pairwise(starts)]


def test_program_that_syncs_only_at_its_end_has_gpu_step_times(fake_gpu, script):
    run = fake_gpu().record(script(LOOP), 0.2, "waits")
    known = periods(run)
    assert min(known) >= 0.2
    durations = [step.duration for step in run.steps if not step.tags]
    assert len(durations) >= 2
    assert median(durations) == pytest.approx(median(known), rel=NEAR)


def test_program_that_syncs_at_its_end_reaches_every_step(fake_gpu, script):
    run = fake_gpu().record(script(LOOP), 0.2, "waits")
    assert not any(step.tags & TAG_UNREACHED for step in run.steps)


def test_steps_that_the_gpu_has_not_reached_at_the_end_have_no_time(fake_gpu, script):
    """Each step takes the GPU 60 s; the program does not wait for any of them, and neither do we."""
    gpu = fake_gpu()
    run = gpu.record(script(LOOP), 60, "ends", options=("--no-windows",))
    assert run.status == 0, run.err.decode()
    assert len(run.steps) == STEPS
    assert all(step.tags & TAG_UNREACHED for step in run.steps)
    assert run.counts["event_sync"] == run.counts["device_sync"] == 0
    assert "value" not in run.result["metrics"]["step_time_mean"]


@pytest.mark.parametrize("how", ["whole", "stages"])
def test_step_of_a_model_on_two_gpus_has_a_duration_but_no_phases(fake_gpu, script, how):
    run = fake_gpu("H100:80,H100:80").record(script(SPLIT), how)
    assert run.status == 0, run.err.decode()
    known = median(periods(run, device=1, each=2))
    assert known >= 3 * (0.02 + 0.04)
    steps = [step for step in run.steps if not step.tags][2:]
    assert median(step.duration for step in steps) == pytest.approx(known, rel=NEAR)
    assert {getattr(step, phase) for step in steps for phase in PHASES} == {None}
    assert set(run.problems) == {"cuda_events"}
