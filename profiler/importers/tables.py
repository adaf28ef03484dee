"""A trace as the rows that a recorder would have written of it: what it does not tell stays None."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from profiler.agent.redact import redact_text
from profiler.importers.breakdown import named
from profiler.importers.columns import ANNOTATION, KERNEL, OPERATOR, Integers, Mask
from profiler.importers.gpu_time import Shares, account
from profiler.importers.kineto import Trace
from profiler.importers.nesting import around
from profiler.importers.spans import Spans, covers, union
from profiler.importers.steps import Steps
from profiler.importers.work import Work
from profiler.recorder.kernel_kinds import kernel_kind, operator_kind
from profiler.recorder.kernels import MARK, MAY_BE_OPTIMIZER, NAME_LENGTH
from profiler.recorder.operators import MOST
from profiler.recorder.trace import FLOATING
from profiler.schema import Kernel, Operator, Window

PID = 0
"""Stands for the traced process in every row of its rank: the trace's own number may be another machine's."""


def window(trace: Trace, work: Work, parts: Shares | None, steps: Steps) -> Window:
    """The analysed steps; where none are marked, all that there is, as one."""
    row = Window(
        pid=PID,
        start=steps.begin * 1e-9,
        steps=max(1, steps.number),
        duration=(steps.end - steps.begin) * 1e-9,
        cost=0.0,
        shapes=bool(trace.inputs),
        events=trace.events,
    )
    if parts is None:
        return row
    inside = steps.asked_in(work) & (work.category == KERNEL)
    lengths = (work.end - work.start)[inside]
    return replace(
        row,
        device="cuda",
        kernels=len(lengths),
        median_kernel=float(np.median(lengths)) * 1e-9 if len(lengths) else None,
        **account(trace, work, parts, steps.begin, steps.end)._asdict(),
    )


def kernels(trace: Trace, work: Work, steps: Steps) -> tuple[Kernel, ...]:
    """GPU work by name and kind, of the steps; most time first."""
    inside = work.where(steps.asked_in(work))
    in_optimizer = covers(optimizer_ranges(trace), inside.asked)
    rows = []
    for number, of_optimizer, calls, total in _summed(inside.name, in_optimizer, inside.end - inside.start):
        told = kernel_kind(trace.names[number])
        kind = "optimizer" if of_optimizer and told.kind in MAY_BE_OPTIMIZER else told.kind
        rows.append(_kernel(trace, "cuda", number, kind, calls, total, told.tensor_cores, told.dtype))
    return _merged(rows)


def operators_by_name(trace: Trace, steps: Steps) -> tuple[Kernel, ...]:
    """The host's operators by name and kind, each without those that it called, of the steps; most time first."""
    rows, own, _ = _operators(trace, steps)
    in_optimizer = covers(optimizer_ranges(trace), trace.ranges.start[rows])
    found = []
    for number, of_optimizer, calls, total in _summed(trace.ranges.name[rows], in_optimizer, own):
        kind = operator_kind(trace.names[number])
        kind = "optimizer" if of_optimizer and kind in MAY_BE_OPTIMIZER else kind
        found.append(_kernel(trace, "cpu", number, kind, calls, total, None, None))
    return _merged(found)


def operators(trace: Trace, work: Work, steps: Steps) -> tuple[Operator, ...]:
    """By name and shapes, where these were recorded: with the time of the GPU work that each launched itself; without
    any such work with the operators' own. Most time first."""
    if not trace.inputs:
        return ()
    ranges = trace.ranges
    if not len(work):
        rows, own, _ = _operators(trace, steps)
        return _by_shape(trace, "cpu", rows, own)
    inside = work.where(steps.asked_in(work) & work.launched)
    calls, of_call = np.unique(inside.call, return_inverse=True)
    rows = np.concatenate((np.flatnonzero(ranges.category == OPERATOR), calls))
    outer = around(ranges.thread[rows], ranges.start[rows], ranges.end[rows])
    number = len(rows) - len(calls)
    caller = outer[number:]
    while len(climbing := np.flatnonzero(caller >= number)):  # a call of the driver lies in one of the runtime
        caller[climbing] = outer[caller[climbing]]
    of_work = caller[of_call]
    known = of_work >= 0
    times = np.bincount(of_work[known], (inside.end - inside.start)[known], minlength=number).astype(np.int64)
    launching = np.unique(of_work[known])
    return _by_shape(trace, "cuda", rows[launching], times[launching])


def optimizer_ranges(trace: Trace) -> Spans:
    """Time in `Optimizer.step`, less the steps whose closure runs forward and backward (LBFGS, Lightning)."""
    ranges = trace.ranges
    updates = named(trace, lambda name: name.startswith("Optimizer.step#")) & (ranges.category == ANNOTATION)
    backward = np.sort(ranges.start[named(trace, is_backward)])
    start, end = ranges.start[updates], ranges.end[updates]
    plain = np.searchsorted(backward, start, "left") == np.searchsorted(backward, end, "left")
    return union(start[plain], end[plain])


def is_backward(name: str) -> bool:
    """Whether the operator is a node of the backward pass, with all that it calls."""
    return name.startswith("autograd::engine::evaluate_function")


def _operators(trace: Trace, steps: Steps) -> tuple[Integers, Integers, Integers]:
    """Positions of the steps' operators, their own nanoseconds, and the innermost around each."""
    ranges = trace.ranges
    rows = np.flatnonzero((ranges.category == OPERATOR) & ~named(trace, lambda name: name == MARK))
    start, end = ranges.start[rows], ranges.end[rows]
    outer = around(ranges.thread[rows], start, end)
    inner = np.flatnonzero(outer >= 0)
    # Clock ticks may let a call seem to outlast its caller.
    taken = np.minimum(end[inner], end[outer[inner]]) - start[inner]
    own = end - start
    own = np.maximum(own - np.bincount(outer[inner], taken, minlength=len(rows)).astype(np.int64), 0)
    inside = (start >= steps.begin) & (start < steps.end)
    return rows[inside], own[inside], outer[inside]


def _summed(name: npt.NDArray[np.int32], flag: Mask, times: Integers) -> Iterable[tuple[int, bool, int, int]]:
    """By name and flag: how many, and their time together."""
    key = name.astype(np.int64) * 2 + flag
    found, at, calls = np.unique(key, return_inverse=True, return_counts=True)
    totals = np.zeros(len(found), np.int64)
    np.add.at(totals, at, times)
    for number, count, total in zip(found.tolist(), calls.tolist(), totals.tolist(), strict=True):
        yield number // 2, bool(number % 2), count, total


def _kernel(
    trace: Trace,
    device: Literal["cpu", "cuda"],
    number: int,
    kind: str,
    calls: int,
    total: int,
    tensor_cores: bool | None,
    dtype: str | None,
) -> Kernel:
    return Kernel(
        pid=PID,
        window=0,
        device=device,
        name=_shown(trace.names[number]),
        kind=kind,
        calls=calls,
        total=total * 1e-9,
        tensor_cores=tensor_cores,
        dtype=dtype,
    )


def _merged(rows: list[Kernel]) -> tuple[Kernel, ...]:
    """Most time first."""
    return tuple(sorted(rows, key=lambda row: (-row.total, row.name, row.kind)))


def _by_shape(trace: Trace, device: Literal["cpu", "cuda"], rows: Integers, times: Integers) -> tuple[Operator, ...]:
    shaped = trace.ranges.inputs[rows] >= 0
    rows, times = rows[shaped], times[shaped]
    read = [_inputs(*each) for each in trace.inputs]
    alike = {each: number for number, each in reversed(list(enumerate(read)))}  # types may differ where shapes do not
    number = np.array([alike[each] for each in read])[trace.ranges.inputs[rows]]
    key = trace.ranges.name[rows].astype(np.int64) * len(read) + number
    found, at, calls = np.unique(key, return_inverse=True, return_counts=True)
    totals = np.zeros(len(found), np.int64)
    np.add.at(totals, at, times)
    made = []
    for code, count, total in zip(found.tolist(), calls.tolist(), totals.tolist(), strict=True):
        shapes, dtype = read[code % len(read)]
        if any(shapes):
            made.append(
                Operator(
                    pid=PID,
                    window=0,
                    device=device,
                    name=_shown(trace.names[code // len(read)]),
                    inputs=shapes,
                    dtype=dtype,
                    calls=count,
                    total=total * 1e-9,
                )
            )
    return tuple(sorted(made, key=lambda row: (-row.total, row.name, row.inputs))[:MOST])


def _inputs(dims: bytes, types: bytes) -> tuple[tuple[tuple[int, ...], ...], str | None]:
    """As `profiler.recorder.trace` reads them."""
    given = msgspec.json.decode(dims)
    shapes = tuple(
        tuple(each) if isinstance(each, list) and all(type(n) is int for n in each) else ()
        for each in (given if isinstance(given, list) else ())
    )
    names = msgspec.json.decode(types) if types else []
    named = (name for name in names if isinstance(name, str)) if isinstance(names, list) else ()
    return shapes, next((FLOATING[name] for name in named if name in FLOATING), None)


def _shown(name: str) -> str:
    """Short, and without secrets: a program may name its ranges anything."""
    return redact_text(name[:NAME_LENGTH])
