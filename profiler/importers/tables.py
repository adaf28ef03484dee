"""Convert a trace to the rows that a recorder would have written. Fields that the trace does not cover stay None."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from profiler.agent.redact import redact_text
from profiler.importers.arithmetic import parse
from profiler.importers.columns import ANNOTATION, KERNEL, OPERATOR
from profiler.importers.gpu_time import Shares, account
from profiler.importers.intervals import Groups, Integers, Mask, around
from profiler.importers.kernel_kinds import TENSOR_KINDS, kernel_kind, operator_kind
from profiler.importers.kineto import Trace
from profiler.importers.steps import MARK, Steps
from profiler.importers.work import FETCH, GpuWork, HostActivity
from profiler.schema import Kernel, Step, Window

PID = 0
"""Placeholder for the traced process in every row of its rank. The trace's own PID may be another machine's."""
NAME_LENGTH = 300
"""Maximum characters of a name: C++ template names run to thousands, and the first few suffice."""
MAY_BE_OPTIMIZER = frozenset({"elementwise", "reduction", "normalization", "other"})
"""Kinds of kernels that an optimizer without a fused or foreach implementation also launches."""
_WORKERS = f"{FETCH}_MultiProcessingDataLoaderIter"
_UPDATE = re.compile(r"Optimizer\.step#(\w+)\.step$")
_FUSED = re.compile(r"fused_?(adam|sgd|adagrad)|^triton_", re.IGNORECASE)
"""Kernels of torch's fused optimizers, and of a compiled update."""


def window(
    trace: Trace, work: GpuWork, inside: GpuWork, parts: Shares, steps: Steps, in_steps: Sequence[Step]
) -> Window:
    """Return the Window of the analyzed steps; without marks the whole trace counts as one step."""
    row = Window(
        pid=PID,
        start=steps.begin * 1e-9,
        steps=max(1, steps.number),
        duration=(steps.end - steps.begin) * 1e-9,
        cost=0.0,
        shapes=bool(trace.inputs),
        events=trace.delaying,
    )
    if not len(work):
        return row
    launch_times = [step.host_launch for step in in_steps if step.host_launch is not None]
    lengths = inside.length[inside.category == KERNEL]
    return replace(
        row,
        device="cuda",
        kernels=len(lengths),
        median_kernel=float(np.median(lengths)) * 1e-9 if len(lengths) else None,
        host_launch=sum(launch_times) if launch_times else None,
        **account(trace, work, parts, steps.begin, steps.end),
    )


def kernels(trace: Trace, inside: GpuWork, host: HostActivity, operator: Integers) -> tuple[Kernel, ...]:
    """Return the steps' GPU work by name and kind, most time first; `operator` is the one around each launch."""
    shares, dtypes = _reached(inside), _dtypes(trace, inside.name, operator)
    rows = []
    for number, row in _by_name(trace, "cuda", inside.name, host.updates.covers(inside.asked), inside.length):
        classification = kernel_kind(trace.names[number])
        dtype = classification.dtype or dtypes.get(number)
        rows.append(replace(row, tensor_cores=classification.tensor_cores, dtype=dtype, reached=shares.get(number)))
    return tuple(rows)


def operators_by_name(trace: Trace, host: HostActivity, steps: Steps) -> tuple[Kernel, ...]:
    """Return the steps' host operators by name and kind, most time first.

    Each operator's time leaves out the operators that it called.
    """
    rows, times = own_times(trace, steps)
    in_optimizer = host.updates.covers(trace.ranges.start[rows])
    return tuple(row for _, row in _by_name(trace, "cpu", trace.ranges.name[rows], in_optimizer, times))


def _by_name(
    trace: Trace, device: Literal["cpu", "cuda"], name: npt.NDArray[np.int32], in_optimizer: Mask, times: Integers
) -> list[tuple[int, Kernel]]:
    """Return a row for each name and kind, with the name's number; most time first."""
    groups = Groups(name, in_optimizer)
    rows = []
    for first, calls, total in zip(groups.first, groups.count().tolist(), groups.seconds(times).tolist(), strict=True):
        text = trace.names[name[first]]
        kind = kernel_kind(text).kind if device == "cuda" else operator_kind(text)
        kind = "optimizer" if in_optimizer[first] and kind in MAY_BE_OPTIMIZER else kind
        row = Kernel(pid=PID, window=0, device=device, name=shown(text), kind=kind, calls=calls, total=total)
        rows.append((int(name[first]), row))
    return sorted(rows, key=lambda pair: (-pair[1].total, pair[1].name, pair[1].kind))


def _reached(work: GpuWork) -> dict[int, float]:
    """Return, by name, the share of the multiprocessors that kernels have blocks for, averaged over their time."""
    with_blocks = work.where(~np.isnan(work.blocks))
    times = with_blocks.length.astype(np.float64)
    size = int(with_blocks.name.max(initial=-1)) + 1
    total_times = np.bincount(with_blocks.name, times, minlength=size)
    reached_times = np.bincount(with_blocks.name, times * np.clip(with_blocks.blocks, 0, 1), minlength=size)
    return {int(number): float(reached_times[number] / total_times[number]) for number in np.flatnonzero(total_times)}


def _dtypes(trace: Trace, kernel: npt.NDArray[np.int32], operator: Integers) -> dict[int, str]:
    """Return the dtypes, by name, of matmuls whose names do not show them, such as Inductor's triton_tem_* templates.

    A dtype is taken from the inputs of the operator around the launch if that is a matmul too or has the kernel's name,
    and if all launches agree. fp32 inputs may be computed in TF32, so they are ignored.
    """
    unclear_kernels = {
        number
        for number in np.unique(kernel).tolist()
        if (classification := kernel_kind(trace.names[number])).dtype is None and classification.kind in TENSOR_KINDS
    }
    if not unclear_kernels or not trace.inputs:
        return {}
    is_unclear = np.isin(kernel, list(unclear_kernels)) & (operator >= 0)
    inputs, names = trace.ranges.inputs[operator[is_unclear]], trace.ranges.name[operator[is_unclear]]
    dtypes_by_kernel: dict[int, set[str | None]] = {}
    for number, caller, index in set(zip(kernel[is_unclear].tolist(), names.tolist(), inputs.tolist(), strict=True)):
        applies = number == caller or operator_kind(trace.names[caller]) in TENSOR_KINDS
        dtype = parse(*trace.inputs[index]).dtype if index >= 0 and applies else None
        dtypes_by_kernel.setdefault(number, set()).add(dtype)
    agreed_dtypes = {number: next(iter(dtypes)) for number, dtypes in dtypes_by_kernel.items() if len(dtypes) == 1}
    return {number: dtype for number, dtype in agreed_dtypes.items() if dtype not in (None, "fp32")}


def settings(trace: Trace, work: GpuWork, host: HostActivity) -> dict[str, Any]:
    """Return `workers`, `optimizer` and `fused` of a TraceFact, as the names of ranges and kernels show."""
    annotations = trace.ranges.where(trace.ranges.category == ANNOTATION)
    groups = Groups(annotations.name)
    fetches, updates = Counter[bool](), Counter[str]()
    for first, time in zip(groups.first, groups.seconds(annotations.length), strict=True):
        name = trace.names[annotations.name[first]]
        if name.startswith(FETCH):
            fetches[name.startswith(_WORKERS)] += time
        elif match := _UPDATE.match(name):
            updates[match[1]] += time
    update_kernels = np.unique(work.name[host.updates.covers(work.asked)]).tolist()
    return {
        "workers": fetches.most_common(1)[0][0] if fetches else None,
        "optimizer": updates.most_common(1)[0][0] if updates else "",
        "fused": any(_FUSED.search(trace.names[number]) for number in update_kernels) if update_kernels else None,
    }


def own_times(trace: Trace, steps: Steps) -> tuple[Integers, Integers]:
    """Return the positions of the steps' operators, and their self times in nanoseconds."""
    ranges = trace.ranges
    rows = np.flatnonzero((ranges.category == OPERATOR) & ~trace.named(lambda name: name == MARK))
    start, end = ranges.start[rows], ranges.end[rows]
    outer = around(ranges.thread[rows], start, end)
    inner = np.flatnonzero(outer >= 0)
    # Clock ticks can make a call appear to outlast its caller.
    inner_times = np.minimum(end[inner], end[outer[inner]]) - start[inner]
    self_times = end - start
    self_times = np.maximum(
        self_times - np.bincount(outer[inner], inner_times, minlength=len(rows)).astype(np.int64), 0
    )
    is_inside = (start >= steps.begin) & (start < steps.end)
    return rows[is_inside], self_times[is_inside]


def shown(name: str) -> str:
    """Return the name shortened and without secrets: a program may name its ranges anything."""
    return redact_text(name[:NAME_LENGTH])
