"""The stand-in itself simulates what CUDA would do."""

import json

import pytest

TRAIN = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 256, device="cuda"), torch.zeros(64, dtype=torch.long, device="cuda")
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print("loss", loss.item(), torch.cuda.max_memory_allocated())
"""


def test_recorded_program_makes_the_same_cuda_calls_except_events(fake_gpu, script):
    gpu, train = fake_gpu(), script(TRAIN)
    plain, recorded = gpu.run(train, 100), gpu.record(train, 100)
    assert (plain.status, recorded.status) == (0, 0), recorded.err.decode()
    assert plain.out == recorded.out
    events = {
        "event_create",
        "event_record",
        "event_query",
        "event_elapsed",
        "is_capturing",
        "stream_query",
        "mem_get_info",
    }
    assert {k: n for k, n in plain.counts.items() if k not in events} == {
        k: n for k, n in recorded.counts.items() if k not in events
    }
    assert len(recorded.steps) == 100


def test_kernels_take_the_time_that_was_set(fake_gpu, script):
    program = script("""
        import torch
        a, b = torch.zeros(64, 32, device="cuda"), torch.zeros(32, 16, device="cuda")
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1)
        begin.record(); torch.cuda._sleep(7_000_000); a @ b; end.record(); end.synchronize()
        print(begin.elapsed_time(end))
    """)
    ran = fake_gpu(kernels={"gemm 16x64x32": 5e-3}, speed=0.5).run(program)
    assert float(ran.out) == pytest.approx(12.0, rel=0.01)
    (product,) = [op for op in ran.ops if "gemm" in op.name]
    assert product.seconds == pytest.approx(5e-3)


TEARDOWN = """
import json, sys, time, torch
from torch.profiler import ProfilerActivity, profile
x = torch.zeros(8, device="cuda")
kernels = []
for _ in range(2):
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(3):
            x.add_(1)
        torch.cuda.synchronize()
    kernels.append(sum("elementwise" in event.name for event in profiler.events()))
    for _ in range(20):  # Kineto asks a thread of its own to wait for the next call
        x.add_(1)
        time.sleep(0.02)
print(json.dumps(kernels))
"""


def test_cupti_is_finalized_after_each_profile_and_restarts(fake_gpu, script):
    ran = fake_gpu(env={"TEARDOWN_CUPTI": "1"}).run(script(TEARDOWN))
    assert ran.status == 0, ran.err.decode()
    assert json.loads(ran.out) == [3, 3]
    assert ran.counts["cupti_finalize"] == 2


OPEN_AT_THE_END = """
import time, torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x = torch.zeros(8, 64, device="cuda")
for step in range(4000):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.005)
    if torch.autograd._profiler_enabled():
        break
print(torch.autograd._profiler_enabled())
"""


def test_program_with_cupti_teardown_can_exit_during_a_window(fake_gpu, script):
    """Kineto then waits for a CUDA call, and the process waits for Kineto."""
    ran = fake_gpu(env={"TEARDOWN_CUPTI": "1"}).record(script(OPEN_AT_THE_END), options=("--budget", "0.5"))
    assert ran.out.split() == [b"True"]
    assert ran.status == 0, ran.err.decode()
