"""The analysis of one trace: everything the trace shows about its rank, without its columns.

It stays small, however large the trace is.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiler.errors import ProfilerError
from profiler.importers import kineto, operators, tables
from profiler.importers.breakdown import Breakdown, breakdown, host_of
from profiler.importers.callers import callers
from profiler.importers.collectives import Collectives, collectives
from profiler.importers.columns import Integers
from profiler.importers.critical_path import Part, critical_path
from profiler.importers.gpu_time import shares
from profiler.importers.kineto import TraceDevice
from profiler.importers.launches import Launches, launches
from profiler.importers.one_step import looks
from profiler.importers.phases import steps_on_gpu, steps_on_host
from profiler.importers.queue import Queue, queues
from profiler.importers.settings import Settings, settings_of
from profiler.importers.steps import steps_of
from profiler.importers.syncs import syncs
from profiler.importers.work import device_count, work_of
from profiler.schema import Exchange, Kernel, Launching, Operator, Step, StepLook, Sync, TraceFact, Waiting, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The analysis of one trace file; fields that need GPU work are None or empty if there is none."""

    path: Path
    rank: int | None
    world_size: int | None
    backend: str | None
    devices: tuple[TraceDevice, ...]
    events: int
    marked: bool
    """Whether the trace marks steps; else it is analyzed as a whole."""
    first: float
    """When the first marked step began on the host, in seconds of the trace."""
    cut_off: bool
    """Whether the file ends too early; the analysis then covers what came before."""
    window: Window
    steps: tuple[Step, ...]
    kernels: tuple[Kernel, ...]
    operators: tuple[Operator, ...]
    syncs: tuple[Sync, ...]
    breakdown: Breakdown | None
    queues: tuple[Queue, ...]
    launches: Launches | None
    collectives: tuple[Collectives, ...]
    critical: dict[Part, float] | None
    """Seconds of the median step's critical path, by part."""
    looks: tuple[StepLook, ...]
    settings: Settings
    problems: tuple[str, ...]

    def fact(self, position: int = 0) -> TraceFact:
        """Return what the trace shows beyond its rows; `position` is the window's among those of its process."""
        time, calls, first = self.breakdown, self.launches, next(iter(self.queues), None)
        return TraceFact(
            id=position,
            file=self.path.name,
            events=self.events,
            shapes=self.window.shapes,
            steps=round(self.window.steps) if self.marked else None,
            seconds=self.window.duration,
            parts=time.parts() if time else {},
            longest_idle=time.longest_idle * 1e-9 if time else None,
            workers=self.settings.workers,
            optimizer=self.settings.optimizer,
            fused=self.settings.fused,
            overlap=time.overlap / time.communication if time and time.communication else None,
            queue=Waiting(mean=first.mean, most=first.most, empty=first.empty) if first else None,
            launches=_launching(calls) if calls and calls.calls else None,
            critical={str(part): spent for part, spent in (self.critical or {}).items()},
            exchanges=tuple(_exchange(each) for each in self.collectives),
            looks=self.looks,
        )


def analyse(path: Path) -> Analysis:
    """Read the trace at `path` and analyze it.

    Raises:
        ProfilerError: the file cannot be read, is not a trace, or holds nothing to measure.
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
    calling = callers(trace, work)
    on_gpu = len(work) > 0
    parts = shares(trace, work, host, steps.begin, steps.end) if on_gpu else None
    in_steps = steps_on_host(trace, steps) if parts is None else steps_on_gpu(trace, work, host, parts, steps)
    median = _median(steps.reached)
    return Analysis(
        path=path,
        rank=trace.rank,
        world_size=trace.world_size,
        backend=trace.backend,
        devices=trace.devices,
        events=trace.events,
        marked=steps.marked,
        first=steps.first * 1e-9,
        cut_off=trace.cut_off,
        window=tables.window(trace, work, parts, steps, in_steps),
        steps=in_steps,
        kernels=tables.kernels(trace, work, calling, steps) if on_gpu else tables.operators_by_name(trace, steps),
        operators=operators.on_gpu(trace, work, calling, parts, steps) if on_gpu else operators.on_host(trace, steps),
        syncs=syncs(trace, work, host, parts) if parts else (),
        breakdown=breakdown(work, host, steps.begin, steps.end) if on_gpu else None,
        queues=queues(work, steps.begin, steps.end),
        launches=launches(inside) if on_gpu else None,
        collectives=collectives(trace, inside),
        critical=critical_path(work, host, *median).seconds() if on_gpu else None,
        looks=looks(trace, work, host, steps),
        settings=settings_of(trace, inside),
        problems=tuple(problems),
    )


def _median(reached: Integers) -> tuple[int, int]:
    """Return start and end of the step of median length; of two in the middle the shorter."""
    lengths = np.diff(reached)
    at = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    return int(reached[at]), int(reached[at + 1])


def _launching(calls: Launches) -> Launching:
    return Launching(
        calls=calls.calls,
        median=calls.call_median * 1e-9,
        p99=calls.call_p99 * 1e-9,
        slow=calls.slow_calls,
        delay=calls.delay_median * 1e-9,
        shorter=calls.shorter_than_call / calls.calls,
    )


def _exchange(each: Collectives) -> Exchange:
    return Exchange(
        name=each.key.name,
        group=each.key.group,
        ranks=each.key.ranks,
        dtype=each.key.dtype,
        calls=len(each.durations),
        seconds=each.total * 1e-9,
        exposed=each.exposed * 1e-9,
        waited=None if each.waited is None else each.waited * 1e-9,
        bytes=each.bytes,
        algorithm=each.algorithm,
        bandwidth=each.bandwidth,
    )
