"""The GPU work of a trace, each piece with the call that launched it, and what the host did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler.importers.columns import CALL, COPY, KERNEL, OPERATOR, EventColumns
from profiler.importers.intervals import Integers, Mask, Spans, union
from profiler.importers.kernel_kinds import kernel_kind
from profiler.importers.kineto import Trace

COMPUTE, COMMUNICATION, MEMORY = range(3)
"""Kinds of work: kernels, kernels of collectives, and copies and fills."""

NOWHERE = np.iinfo(np.int64).min
"""Time of a call that is not in the trace."""
EARLIER = -1
"""Time of a call before the trace, whose first range begins at 0."""
SLOW_CALL = 50_000
"""Nanoseconds from which a call counts as slow.

A launch takes 5 to 10 us; one of more than 50 has waited for a full queue, a lock or memory.
"""
FETCH = "enumerate(DataLoader)#"
"""Prefix that torch.utils.data gives the ranges of `next(loader)`."""
UPDATE = "Optimizer.step#"
"""Prefix that torch.optim gives the ranges of `step()`."""
BETWEEN_NODES = 10_000
"""Nanoseconds that the autograd engine may take from one node to the next (assumption)."""


@dataclass(frozen=True, slots=True)
class GpuWork(EventColumns):
    """The ranges of the GPU, one row per kernel, copy or fill, with the calls that launched them."""

    kind: npt.NDArray[np.int8]
    """COMPUTE, COMMUNICATION or MEMORY."""
    call: Integers
    """Position of the launching call among the trace's ranges; -1 if the trace has none."""
    call_start: Integers
    """When the launching call began; `EARLIER` for work that the host launched before the trace, else `NOWHERE`."""
    call_end: Integers
    caller: npt.NDArray[np.int32]
    """Thread of the launching call; -1 if the trace has none."""

    @property
    def launched(self) -> Mask:
        """Return, for each row, whether the trace has the launching call."""
        return np.asarray(self.call >= 0)

    @property
    def asked(self) -> Integers:
        """Return when the host launched the work; if unknown, when the work began."""
        return np.where(self.call_start == NOWHERE, self.start, self.call_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostActivity:
    """Activity of all host threads that belongs to the loop or explains an idle GPU."""

    fetches: Spans
    """Time in `next(loader)`."""
    backward: Spans
    """Time in the autograd engine."""
    updates: Spans
    """Time in `Optimizer.step`, without steps whose closure runs forward and backward (LBFGS, Lightning)."""
    waits: Spans
    """Time in calls that return only once the GPU has done something."""
    calls: Integers
    """Positions of these calls among the trace's ranges."""


def work_of(trace: Trace) -> GpuWork:
    """Return the GPU work of a trace; if it covers several GPUs, only of the one with the most kernels."""
    ranges = trace.ranges
    gpu_ranges = ranges.where(ranges.category >= KERNEL)
    gpu_ranges = gpu_ranges.where(_busiest(trace, gpu_ranges))
    calls = np.flatnonzero((ranges.category == CALL) & (ranges.correlation >= 0))
    calls = calls[np.argsort(ranges.correlation[calls], kind="stable")]
    numbers = ranges.correlation[calls]
    # If calls share a number, the last one counts.
    index = np.searchsorted(numbers, gpu_ranges.correlation, "right") - 1
    has_call = (gpu_ranges.correlation >= 0) & (np.append(numbers, -1)[index] == gpu_ranges.correlation)
    call = np.where(has_call, np.append(calls, -1)[index], -1)
    missing_start = np.where(_launched_earlier(trace, gpu_ranges, has_call), EARLIER, NOWHERE)
    return GpuWork(
        **gpu_ranges.columns(),
        kind=_kinds(trace, gpu_ranges),
        call=call,
        call_start=np.where(has_call, ranges.start[call], missing_start),
        call_end=np.where(has_call, ranges.end[call], NOWHERE),
        caller=np.where(has_call, ranges.thread[call], -1).astype(np.int32),
    )


def host_of(trace: Trace, work: GpuWork) -> HostActivity:
    """Return the host activity of a trace."""
    ranges = trace.ranges
    is_wait = trace.named(lambda name: "ynchronize" in name) & (ranges.category == CALL)
    # A copy whose call returned only when it was done made the host wait, too. So did a slow copy from pageable
    # memory, which the driver first copies into its own buffer.
    copies = (is_copy(trace, work, "DtoH") | is_copy(trace, work, "HtoD")) & work.launched
    is_staged = is_copy(trace, work, "Pageable -> Device") & (work.call_end - work.call_start > SLOW_CALL)
    calls = np.concatenate((np.flatnonzero(is_wait), work.call[copies & ((work.call_end >= work.end) | is_staged)]))
    nodes = trace.named(is_backward)
    updates = ranges.where(trace.annotated(UPDATE))
    bounds = (np.searchsorted(ranges.start[nodes], moments, "left") for moments in (updates.start, updates.end))
    return HostActivity(
        fetches=ranges.spans(trace.annotated(FETCH)),
        backward=_joined(ranges.spans(nodes & (ranges.category == OPERATOR))),
        updates=updates.spans(np.equal(*bounds)),
        waits=union(ranges.start[calls], ranges.end[calls]),
        calls=calls,
    )


def is_copy(trace: Trace, work: GpuWork, way: str) -> Mask:
    """Return which work is a copy with `way` in its name, such as "HtoD", "DtoH" or "Pageable"."""
    mask = np.fromiter((way in name for name in trace.names), bool, len(trace.names))
    return np.asarray(mask[work.name] & (work.category == COPY))


def is_backward(name: str) -> bool:
    """Return whether the operator is a node of the backward pass; its range covers everything it calls."""
    return name.startswith("autograd::engine::evaluate_function")


def device_count(trace: Trace) -> int:
    """Return the number of GPUs that the process uses."""
    return len({device for device, _ in trace.streams})


def _joined(nodes: Spans) -> Spans:
    """Return each pass of the engine as one span, including the moments between its nodes."""
    if not len(nodes):
        return nodes
    is_apart = nodes.start[1:] - nodes.end[:-1] > BETWEEN_NODES
    return Spans(nodes.start[np.append(True, is_apart)], nodes.end[np.append(is_apart, True)])


def _launched_earlier(trace: Trace, found: EventColumns, known: Mask) -> Mask:
    """Return which work the host launched before the trace.

    On each stream, that is the work that begins before the trace's first call, and what is queued behind it up to the
    first work whose call is known.
    """
    calls = trace.ranges.start[trace.ranges.category == CALL]
    first_call, is_earlier = calls[0] if len(calls) else -1, np.zeros(len(found), bool)
    for stream in np.unique(found.stream):
        stream_rows = np.flatnonzero(found.stream == stream)
        queued_rows = stream_rows[: int(np.argmax(known[stream_rows])) if known[stream_rows].any() else 0]
        if len(queued_rows) and found.start[queued_rows[0]] < first_call:
            is_earlier[queued_rows] = True
    return is_earlier


def _busiest(trace: Trace, found: EventColumns) -> Mask:
    if device_count(trace) < 2:
        return np.ones(len(found), bool)
    numbers: dict[object, int] = {}
    gpu_of_stream = np.array([numbers.setdefault(device, len(numbers)) for device, _ in trace.streams])
    counts = np.bincount(gpu_of_stream[found.stream[found.category == KERNEL]], minlength=len(numbers))
    return np.asarray(gpu_of_stream[found.stream] == counts.argmax())


def _kinds(trace: Trace, found: EventColumns) -> npt.NDArray[np.int8]:
    kernels = np.unique(found.name[found.category == KERNEL]).tolist()
    communication_names = [number for number in kernels if kernel_kind(trace.names[number]).kind == "communication"]
    kinds = np.select(
        (found.category >= COPY, np.isin(found.name, communication_names)), (MEMORY, COMMUNICATION), COMPUTE
    )
    return kinds.astype(np.int8)
