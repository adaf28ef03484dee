"""The analysis of one trace: everything the trace shows about its rank, without its columns.

The result stays small, however large the trace is.
"""

from dataclasses import dataclass
from pathlib import Path

from profiler.errors import ProfilerError
from profiler.importers import kineto, operators, tables
from profiler.importers.collectives import Collectives, collectives, exchanges
from profiler.importers.critical_path import critical_path, seconds
from profiler.importers.gpu_time import breakdown, parts_of, shares
from profiler.importers.launches import launches, queue
from profiler.importers.one_step import looks
from profiler.importers.phases import steps_on_gpu, steps_on_host
from profiler.importers.steps import steps_of
from profiler.importers.syncs import syncs
from profiler.importers.work import device_count, host_of, work_of
from profiler.schema import DeviceFact, Kernel, Operator, Step, Sync, TraceFact, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The analysis of one trace file."""

    rank: int | None
    world_size: int | None
    devices: tuple[DeviceFact, ...]
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
    collectives: tuple[Collectives, ...]
    fact: TraceFact
    """What the trace shows beyond its rows."""
    problems: tuple[str, ...]


def analyze(path: Path) -> Analysis:
    """Read the trace at `path` and analyze it.

    Raises:
        ProfilerError: the file cannot be read, is not a trace, or holds nothing to measure.
    """
    trace = kineto.read(path)
    work = work_of(trace)
    host = host_of(trace, work)
    steps = steps_of(trace, work)
    if steps.end <= steps.begin:
        raise ProfilerError(f"The trace {path} covers no time.", "Record several steps of the training.")
    problems = list(trace.problems)
    if (devices := device_count(trace)) > 1:
        problems.append(
            f"{path.name} contains work from {devices} GPUs of one process. The report covers only the GPU with "
            "the most kernels."
        )
    step_work = work.where(steps.asked_in(work))
    on_gpu, typical = len(work) > 0, steps.typical
    spans_by_part = parts_of(work, host, steps.begin, steps.end)
    parts = shares(trace, work, host, spans_by_part, steps.begin, steps.end)
    if on_gpu:
        callers = operators.callers(trace, step_work)
        step_rows = steps_on_gpu(trace, work, host, parts, steps)
        kernel_rows = tables.kernels(trace, step_work, host, callers.operator)
        operator_rows = operators.on_gpu(trace, step_work, host, callers, parts, steps)
    else:
        step_rows = steps_on_host(trace, host, steps)
        kernel_rows, operator_rows = tables.operators_by_name(trace, host, steps), operators.on_host(trace, steps)
    collective_rows = collectives(trace, step_work)
    window = tables.window(trace, work, step_work, parts, steps, step_rows)
    fact = TraceFact(
        id=0,
        file=path.name,
        events=trace.events,
        shapes=window.shapes,
        steps=round(window.steps) if steps.marked else None,
        seconds=window.duration,
        **(breakdown(work, spans_by_part, steps.begin, steps.end) if on_gpu else {}),
        **tables.settings(trace, step_work, host),
        queue=queue(work, steps.begin, steps.end),
        launches=launches(step_work),
        critical=seconds(critical_path(work, host, *steps.reached[typical : typical + 2].tolist())) if on_gpu else {},
        exchanges=exchanges([collective_rows])[0],
        looks=looks(trace, work, host, steps),
    )
    return Analysis(
        rank=trace.rank,
        world_size=trace.world_size,
        devices=trace.devices,
        marked=steps.marked,
        first=steps.first * 1e-9,
        cut_off=trace.cut_off,
        window=window,
        steps=step_rows,
        kernels=kernel_rows,
        operators=operator_rows,
        syncs=syncs(trace, work, host, parts) if on_gpu else (),
        collectives=collective_rows,
        fact=fact,
        problems=tuple(problems),
    )
