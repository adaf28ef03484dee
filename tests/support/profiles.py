"""Profiles small enough to compute by hand."""

from __future__ import annotations

from typing import Any

from advisor.metrics.base import Goals, Metrics
from advisor.runs.profile import Profile, Rank
from profiler.schema import Batch, DeviceFact, Kernel, Operator, Process, Run, Step, Window

RUN = Run(
    id="r",
    command=("train.py",),
    cwd="/",
    host="h",
    started_at=0.0,
    duration=3600.0,
    cores=8.0,
    cores_total=16,
    memory_total=1 << 36,
    platform="Linux",
    python="3.11",
    version="0.1.0",
)


def steps(*durations: float, start: float = 0.0, **columns: Any) -> tuple[Step, ...]:
    """Return consecutive steps; a column has the same value in all of them."""
    made = []
    for index, duration in enumerate(durations):
        made.append(Step(pid=1, index=index, start=start, duration=duration, **columns))
        start += duration
    return tuple(made)


def batches(*durations: float, loader: int = 1, every: float = 0.1, **columns: Any) -> tuple[Batch, ...]:
    """Return batches that begin `every` seconds apart, with half of their time on the CPU."""
    defaults = {"collate": 0.0, "samples": 4.0}
    return tuple(
        Batch(pid=2, loader=loader, start=n * every, duration=d, cpu=d / 2, **{**defaults, **columns})
        for n, d in enumerate(durations)
    )


def rank(number: int = 0, **tables: Any) -> Rank:
    process = tables.pop("process", {})
    return Rank(process=Process(pid=1, rank=number, local_rank=number, started=0.0, **process), **tables)


def metrics(*ranks: Rank, goals: Goals | None = None, **tables: Any) -> Metrics:
    return Metrics(Profile(**{"runs": (RUN,), "ranks": ranks, **tables}), goals)


def with_operators(*operators: Operator) -> Metrics:
    """Return the metrics of an A100's run with these operators, in two steps whose kernels take one second."""
    windows = (Window(pid=1, start=1.0, steps=2, duration=1.0, cost=0.0, device="cuda", busy=1.0, kernels=9),)
    kernels = (Kernel(pid=1, window=1, device="cuda", name="gemm", kind="matmul", calls=1, total=1.0),)
    devices = (DeviceFact(id=0, name="NVIDIA A100-SXM4-80GB", capability=(8, 0), memory_total=80 * 10**9),)
    run = rank(steps=steps(*[0.1] * 40), windows=windows, kernels=kernels, operators=operators, devices=devices)
    return metrics(run)


def torch_uuid(number: int) -> str:
    """Return a GPU's UUID in the format of `str(torch.cuda.get_device_properties(...).uuid)`."""
    return f"8c2f41aa-0000-0000-0000-{number:012x}"


def nvml_uuid(number: int) -> str:
    """Return the same GPU's UUID in NVML's format."""
    return f"GPU-{torch_uuid(number)}"
