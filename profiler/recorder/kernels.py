"""Reads a profiler window: where the GPU's time went, or on a CPU which operators took it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Literal

from profiler.errors import ProfilerError
from profiler.recorder.gpu_time import WORK, account, launched, reached
from profiler.recorder.intervals import Interval, union
from profiler.recorder.kernel_kinds import kernel_kind, operator_kind
from profiler.recorder.operators import on_cpu, on_gpu
from profiler.recorder.trace import Event, read
from profiler.schema import Kernel, Operator, Window

MARK = "profile-train step"
"""The agent's mark at a step boundary. `profiler.agent.window.MARK` is the same; a test holds the two together."""

NAME_LENGTH = 300  # C++ template names run to thousands of characters; a reader needs the first few

# What an optimizer without a fused or foreach implementation launches looks like any other arithmetic.
MAY_BE_OPTIMIZER = frozenset({"elementwise", "reduction", "normalization", "other"})


def parse(
    path: Path,
    *,
    pid: int,
    position: int,
    start: float,
    steps: int,
    cost: float,
    device: Literal["cpu", "cuda"] | None = None,
) -> tuple[Window, list[Kernel], list[Operator]]:
    """The window whose trace lies at `path`, its kernels (or operators), and where shapes were recorded, the operators
    by them; each most time first.

    `position` is the window's among those of process `pid`, `start` its first step boundary on the run clock (s),
    `cost` what it cost the program (s). `steps` counts only if the trace marks none. With `device` "cuda" a trace
    without GPU work is an error, not an idle GPU.

    On CUDA the first marked step leads in and is left out. The others are cut where the GPU reaches each boundary, and
    that time is exactly busy + h2d + idle_data + idle_sync + idle_launch + idle_other.

    Raises ProfilerError if the file is cut off, foreign, or holds nothing to measure.
    """
    events = read(path)
    has_work = any(event.category in WORK for event in events)
    if device == "cuda" and not has_work:
        raise ProfilerError(
            f"The profiler window {path} shows no GPU work.",
            "Another tool may hold CUPTI (Nsight, DCGM's profiling, a debugger): end it and record again.",
        )
    boundaries = _boundaries(events)
    if boundaries:
        lead_in = 1 if has_work and len(boundaries) > 2 else 0
        steps = len(boundaries) - 1 - lead_in
    else:
        lead_in = 0
        boundaries = [min(event.start for event in events), max(event.end for event in events)]
    begin, end = boundaries[lead_in], boundaries[-1]
    if not end > begin:
        raise ProfilerError(f"The profiler window {path} spans no time.", "Record the run again.")
    window = Window(
        pid=pid,
        start=start + begin - boundaries[0],
        steps=steps,
        duration=end - begin,
        cost=cost,
        shapes=any(event.inputs for event in events),
        events=len(events),
    )
    if has_work:
        return _on_gpu(window, position, events, begin, end)
    own = [(event, seconds) for event, seconds in _self_times(events) if begin <= event.start < end]
    return window, _operators(pid, position, own, _optimizer_ranges(events)), on_cpu(pid, position, own)


def _boundaries(events: list[Event]) -> list[float]:
    """When steps begin and end, on the host: at our marks, else at torch.profiler's own; fewer than two are none."""
    marks = sorted(event.start for event in events if event.name == MARK)
    if not marks:
        own = sorted(
            (event.start, event.end)
            for event in events
            if event.category == "user_annotation" and event.name.startswith("ProfilerStep#")
        )
        marks = [start for start, _ in own] + [end for _, end in own[-1:]]
    return marks if len(marks) > 1 else []


def _on_gpu(
    window: Window, position: int, events: list[Event], begin: float, end: float
) -> tuple[Window, list[Kernel], list[Operator]]:
    work = launched(events)
    inside = [each for each in work if begin <= each.asked < end]
    kernels = [each.event.end - each.event.start for each in inside if each.event.category == "kernel"]
    began, ended = reached(begin, work), reached(end, work)
    time = account(began, ended, work, events)
    measured = replace(
        window,
        start=window.start + began - begin,
        duration=ended - began,
        device="cuda",
        kernels=len(kernels),
        median_kernel=median(kernels) if kernels else None,
        **time._asdict(),
    )
    optimizing = _optimizer_ranges(events)
    sums: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in inside:
        kind = _kind_in(kernel_kind(each.event.name).kind, each.asked, optimizing)
        sums[each.event.name, kind].append(each.event.end - each.event.start)
    rows = [
        Kernel(
            pid=window.pid,
            window=position,
            device="cuda",
            name=name[:NAME_LENGTH],
            kind=kind,
            calls=len(seconds),
            total=sum(seconds),
            tensor_cores=kernel_kind(name).tensor_cores,
            dtype=kernel_kind(name).dtype,
        )
        for (name, kind), seconds in sums.items()
    ]
    return measured, sorted(rows, key=_most_first), on_gpu(window.pid, position, inside, events)


def _operators(pid: int, position: int, own: list[tuple[Event, float]], optimizing: list[Interval]) -> list[Kernel]:
    sums: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event, seconds in own:
        sums[event.name, _kind_in(operator_kind(event.name), event.start, optimizing)].append(seconds)
    rows = [
        Kernel(
            pid=pid,
            window=position,
            device="cpu",
            name=name[:NAME_LENGTH],
            kind=kind,
            calls=len(seconds),
            total=sum(seconds),
        )
        for (name, kind), seconds in sums.items()
    ]
    return sorted(rows, key=_most_first)


def _self_times(events: Iterable[Event]) -> Iterator[tuple[Event, float]]:
    """Each operator among `events` with its duration less that of the operators it called, on its thread."""
    threads: dict[object, list[Event]] = defaultdict(list)
    for event in events:
        if event.category == "cpu_op" and event.name != MARK:
            threads[event.thread].append(event)
    for calls in threads.values():
        calls.sort(key=lambda call: (call.start, -call.end))
        open_calls: list[tuple[Event, float]] = []
        for call in calls:
            while open_calls and open_calls[-1][0].end <= call.start:
                yield open_calls.pop()
            if open_calls:
                caller, own = open_calls[-1]
                # Clock ticks may let a call seem to outlast its caller.
                open_calls[-1] = (caller, max(0.0, own - (min(call.end, caller.end) - call.start)))
            open_calls.append((call, call.end - call.start))
        yield from open_calls


def _optimizer_ranges(events: list[Event]) -> list[Interval]:
    """Time in `Optimizer.step`, less the steps whose closure runs forward and backward (LBFGS, Lightning)."""
    backward = [event.start for event in events if event.name.startswith("autograd::engine::evaluate_function")]
    backward.sort()
    return union(
        (event.start, event.end)
        for event in events
        if event.category == "user_annotation"
        and event.name.startswith("Optimizer.step#")
        and bisect_left(backward, event.start) == bisect_left(backward, event.end)
    )


def _kind_in(kind: str, moment: float, optimizing: list[Interval]) -> str:
    """`kind`, or "optimizer" if it is arithmetic asked for inside an optimizer's step."""
    if kind not in MAY_BE_OPTIMIZER:
        return kind
    at = bisect_right(optimizing, (moment, math.inf)) - 1
    return "optimizer" if at >= 0 and moment < optimizing[at][1] else kind


def _most_first(kernel: Kernel) -> tuple[float, str, str]:
    return -kernel.total, kernel.name, kernel.kind
