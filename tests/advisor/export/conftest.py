"""A run as recorders leave it: two nodes whose clocks started a second apart, three ranks, a GPU, hostile names."""

import pytest

from advisor.export.nodes import nodes
from advisor.metrics.base import Metrics
from advisor.runs.load import load
from profiler.schema import (
    TAG_EVALUATION,
    Batch,
    Gpu,
    GpuSample,
    HostSample,
    MemorySample,
    Problem,
    Process,
    Run,
    Step,
    Window,
)
from profiler.store import Writer

STARTED = 1_700_000_000.0


def run(host, started_at, **fields):
    program = {"command": ("=cmd|' /C calc'!A0", 'a"b\n,c'), "cwd": "/", "duration": 20.0, "outcome": "completed"}
    machine = {"cores": 2.0, "cores_total": 2, "memory_total": 2**33, "platform": "Linux", "python": "3.11"}
    return Run(id=f"id-{host}", host=host, started_at=started_at, version="0.1.0", **{**program, **machine, **fields})


def loop(pid, number=50, *, start=1.0, index=0, **fields):
    """Return steps of 100 ms, one after the other."""
    phases = {"data_wait": 0.02, "forward": 0.03, "backward": 0.04, "optimizer": 0.004, "other": 0.006}
    return [
        Step(pid=pid, index=index + n, start=start + n / 10, duration=0.1, batches=1.0, **phases, **fields)
        for n in range(number)
    ]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "run"
    first = Writer(folder, "a")
    first.add(run("a", STARTED, exit_status=0))
    first.add(Process(pid=10, rank=0, world_size=3, started=0.5))
    first.add(Process(pid=11, rank=1, world_size=3, started=0.5))
    first.add(Process(pid=12, parent=10, role="worker", worker_id=0, started=0.6))
    first.add(Gpu(index=0, uuid="GPU-0", name="<b>H200</b>", memory_total=2**37))
    steps = loop(10, 20) + loop(10, 30, start=3.5, index=20, queue_depth=1.5)
    evaluated = Step(pid=10, index=50, start=6.5, duration=0.1, evaluation=0.9, tags=TAG_EVALUATION, other=0.1)
    first.add(*steps, evaluated, *loop(11, start=1.05))
    first.add(*[Batch(pid=12, loader=1, start=1.0 + n, duration=0.5, cpu=0.4, collate=0.1, samples=4) for n in (0, 1)])
    first.add(GpuSample(time=2.0, gpu=0, utilization=0.75, memory_used=2**30), GpuSample(time=3.0, gpu=0, power=300.0))
    first.add(HostSample(time=2.0, cpu=1.5, rss=2**30))
    first.add(MemorySample(time=2.0, pid=10, device=0, allocated=1, allocated_peak=2, reserved=3, reserved_peak=4))
    first.add(Window(pid=10, start=2.0, steps=2, duration=0.2, cost=0.1))
    first.add(Problem(time=4.0, pid=11, source="hook", message='=HYPERLINK("http://evil")</script>\x1b[31m'))
    first.close()
    second = Writer(folder, "b")
    second.add(run("b", STARTED + 1))
    second.add(Process(pid=10, rank=2, world_size=3, node_rank=1, started=0.25))
    second.add(*loop(10, 20, start=0.0), *loop(10, 30, start=2.5, index=20))
    second.close()
    return folder


@pytest.fixture
def exported(folder):
    """Make the input of every format."""
    return lambda: (nodes(folder, load(folder)), Metrics(load(folder)))
