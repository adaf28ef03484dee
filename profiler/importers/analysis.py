"""All that a trace tells of its rank, without its columns: small, however large the trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiler.errors import ProfilerError
from profiler.importers import kineto, tables
from profiler.importers.breakdown import Breakdown, breakdown, host_of
from profiler.importers.collectives import Collectives, collectives
from profiler.importers.columns import Integers
from profiler.importers.critical_path import Part, critical_path
from profiler.importers.gpu_time import shares
from profiler.importers.kineto import Device
from profiler.importers.launches import Launches, launches
from profiler.importers.phases import steps_on_gpu, steps_on_host
from profiler.importers.queue import Queue, queues
from profiler.importers.steps import steps_of
from profiler.importers.work import device_count, work_of
from profiler.schema import Kernel, Operator, Step, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Of one file. What needs GPU work is None, or empty, where there is none."""

    path: Path
    rank: int | None
    world_size: int | None
    backend: str | None
    devices: tuple[Device, ...]
    events: int
    marked: bool
    """The trace marks steps; else it is taken as a whole."""
    window: Window
    steps: tuple[Step, ...]
    kernels: tuple[Kernel, ...]
    operators: tuple[Operator, ...]
    breakdown: Breakdown | None
    queues: tuple[Queue, ...]
    launches: Launches | None
    collectives: tuple[Collectives, ...]
    critical: dict[Part, float] | None
    """Seconds of the median step's critical path."""
    problems: tuple[str, ...]


def analyse(path: Path) -> Analysis:
    """Read the trace at `path` and work out what it tells.

    Raises:
        ProfilerError: it cannot be read, is no trace, or holds nothing to measure.
    """
    trace = kineto.read(path)
    work = work_of(trace)
    host = host_of(trace, work)
    steps = steps_of(trace, work)
    if steps.end <= steps.begin:
        raise ProfilerError(f"The trace {path} spans no time.", "Record several steps of the training.")
    problems = list(trace.problems)
    if (devices := device_count(trace)) > 1:
        problems.append(
            f"{path.name} holds work of {devices} GPUs of one process. This is about the one with most kernels."
        )
    inside = work.where(steps.asked_in(work))
    on_gpu = len(work) > 0
    parts = shares(trace, work, host, steps.begin, steps.end) if on_gpu else None
    median = _median(steps.reached)
    return Analysis(
        path=path,
        rank=trace.rank,
        world_size=trace.world_size,
        backend=trace.backend,
        devices=trace.devices,
        events=trace.events,
        marked=steps.marked,
        window=tables.window(trace, work, parts, steps),
        steps=steps_on_host(trace, steps) if parts is None else steps_on_gpu(trace, work, host, parts, steps),
        kernels=tables.kernels(trace, work, steps) if on_gpu else tables.operators_by_name(trace, steps),
        operators=tables.operators(trace, work, steps),
        breakdown=breakdown(work, host, steps.begin, steps.end) if on_gpu else None,
        queues=queues(work, steps.begin, steps.end),
        launches=launches(inside) if on_gpu else None,
        collectives=collectives(trace, inside),
        critical=critical_path(work, host, *median).seconds() if on_gpu else None,
        problems=tuple(problems),
    )


def _median(reached: Integers) -> tuple[int, int]:
    """Begin and end of the step of median length; of two in the middle the shorter."""
    lengths = np.diff(reached)
    at = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    return int(reached[at]), int(reached[at + 1])
