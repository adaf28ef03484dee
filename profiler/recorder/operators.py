"""Which operators, given which shapes, a window's time went into: what kernels' names do not tell.

A GPU's kernel counts for the innermost operator around the call that launched it. So the parts of an attention that is
written out are found among other products and softmaxes, and the sizes of a product are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from profiler.recorder.gpu_time import Work
from profiler.recorder.trace import Event
from profiler.schema import Operator

MOST = 200
"""Rows a window: of a transformer, all that take a thousandth of the time."""

_NAME_LENGTH = 300


def on_gpu(pid: int, window: int, work: Iterable[Work], events: list[Event]) -> list[Operator]:
    """By the seconds of what each operator has launched on the GPU."""
    if not any(event.inputs for event in events):
        return []
    launched = [(each.call, each.event.end - each.event.start) for each in work if each.call is not None]
    callers = _callers({call for call, _ in launched}, events)
    times: dict[Event, float] = defaultdict(float)  # an operator may launch several
    for call, seconds in launched:
        if call in callers:
            times[callers[call]] += seconds
    return _rows(pid, window, "cuda", times.items())


def on_cpu(pid: int, window: int, own: Iterable[tuple[Event, float]]) -> list[Operator]:
    """By each operator's own seconds, less those of the operators it called."""
    return _rows(pid, window, "cpu", own)


def _callers(calls: set[Event], events: list[Event]) -> dict[Event, Event]:
    """The innermost operator around each of the calls, if there is any."""
    threads: dict[object, list[Event]] = defaultdict(list)
    for event in events:
        if event.category == "cpu_op" or event in calls:
            threads[event.thread].append(event)
    found = {}
    for ranges in threads.values():
        ranges.sort(key=lambda event: (event.start, -event.end))
        around: list[Event] = []
        for event in ranges:
            while around and around[-1].end <= event.start:
                around.pop()
            if event.category == "cpu_op":
                around.append(event)
            elif around:
                found[event] = around[-1]
    return found


def _rows(
    pid: int, window: int, device: Literal["cpu", "cuda"], timed: Iterable[tuple[Event, float]]
) -> list[Operator]:
    sums: dict[tuple[str, tuple[tuple[int, ...], ...], str | None], list[float]] = defaultdict(list)
    for event, seconds in timed:
        if any(event.inputs):
            sums[event.name, event.inputs, event.dtype].append(seconds)
    rows = [
        Operator(
            pid=pid,
            window=window,
            device=device,
            name=name[:_NAME_LENGTH],
            inputs=inputs,
            dtype=dtype,
            calls=len(seconds),
            total=sum(seconds),
        )
        for (name, inputs, dtype), seconds in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.total, row.name, row.inputs))[:MOST]
