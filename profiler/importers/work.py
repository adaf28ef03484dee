"""The GPU work of a trace, each piece with the call that launched it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler.importers.columns import CALL, COPY, KERNEL
from profiler.importers.intervals import Integers, Intervals, Mask
from profiler.importers.kernel_kinds import kernel_kind
from profiler.importers.kineto import Trace

COMPUTE, COMMUNICATION, MEMORY = range(3)
"""Kinds of work: kernels, kernels of collectives, and copies and fills."""

NOWHERE = np.iinfo(np.int64).min
"""Time of a call that is not in the trace."""
EARLIER = -1
"""Time of a call before the trace, whose first range begins at 0."""


@dataclass(frozen=True, slots=True)
class GpuWork(Intervals):
    """The GPU work, one row per kernel, copy or fill, sorted by start; times are nanoseconds of the trace."""

    name: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    """COMPUTE, COMMUNICATION or MEMORY."""
    category: npt.NDArray[np.int8]
    stream: npt.NDArray[np.int32]
    collective: npt.NDArray[np.int32]
    call: Integers
    """Position of the launching call among the trace's ranges; -1 if the trace has none."""
    call_start: Integers
    """When the launching call began; `EARLIER` for work that the host launched before the trace, else `NOWHERE`."""
    call_end: Integers
    thread: npt.NDArray[np.int32]
    """Thread of the launching call; -1 if the trace has none."""
    blocks: npt.NDArray[np.float32]
    """As in Columns."""

    @property
    def launched(self) -> Mask:
        """Return, for each row, whether the trace has the launching call."""
        return np.asarray(self.call >= 0)

    @property
    def asked(self) -> Integers:
        """Return when the host launched the work; if unknown, when the work began."""
        return np.where(self.call_start == NOWHERE, self.start, self.call_start)


def work_of(trace: Trace) -> GpuWork:
    """Return the GPU work of a trace; of several GPUs, that of the one with most kernels."""
    ranges = trace.ranges
    rows = np.flatnonzero(ranges.category >= KERNEL)
    rows = rows[_busiest(trace, ranges.stream[rows], ranges.category[rows] == KERNEL)]
    calls = np.flatnonzero((ranges.category == CALL) & (ranges.correlation >= 0))
    numbers = ranges.correlation[calls]
    order = np.argsort(numbers, kind="stable")
    calls, numbers = calls[order], numbers[order]
    wanted = ranges.correlation[rows]
    # Of calls with the same number the last.
    at = np.searchsorted(numbers, wanted, "right") - 1
    known = (at >= 0) & (wanted >= 0)
    if len(numbers):
        known &= numbers[at] == wanted
    call = np.where(known, calls[at] if len(calls) else -1, -1)
    elsewhere = np.where(_launched_earlier(trace, rows, known), EARLIER, NOWHERE)
    return GpuWork(
        start=ranges.start[rows],
        end=ranges.end[rows],
        name=ranges.name[rows],
        kind=_kinds(trace, ranges.name[rows], ranges.category[rows]),
        category=ranges.category[rows],
        stream=ranges.stream[rows],
        collective=ranges.collective[rows],
        call=call,
        call_start=np.where(known, ranges.start[call], elsewhere),
        call_end=np.where(known, ranges.end[call], NOWHERE),
        thread=np.where(known, ranges.thread[call], -1).astype(np.int32),
        blocks=ranges.blocks[rows],
    )


def device_count(trace: Trace) -> int:
    """Return the number of GPUs that the process uses."""
    return len({device for device, _ in trace.streams})


def _launched_earlier(trace: Trace, rows: Integers, known: Mask) -> Mask:
    """Return which work the host launched before the trace: what runs before the first call, and what is queued behind
    it, up to the first work of the stream whose call is known.
    """
    ranges = trace.ranges
    calls = ranges.start[ranges.category == CALL]
    earlier = np.zeros(len(rows), bool)
    if not len(calls):
        return earlier
    for stream in np.unique(ranges.stream[rows]):
        of_stream = np.flatnonzero(ranges.stream[rows] == stream)
        queued = of_stream[: int(np.argmax(known[of_stream])) if known[of_stream].any() else 0]
        if len(queued) and ranges.start[rows[queued[0]]] < calls.min():
            earlier[queued] = True
    return earlier


def _busiest(trace: Trace, streams: npt.NDArray[np.int32], is_kernel: Mask) -> Mask:
    if device_count(trace) < 2:
        return np.ones(len(streams), bool)
    numbers: dict[object, int] = {}
    of_stream = np.array([numbers.setdefault(device, len(numbers)) for device, _ in trace.streams])
    counts = np.bincount(of_stream[streams[is_kernel]], minlength=len(numbers))
    return np.asarray(of_stream[streams] == counts.argmax())


def _kinds(trace: Trace, name: npt.NDArray[np.int32], category: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    kernels = np.unique(name[category == KERNEL]).tolist()
    sent = [number for number in kernels if kernel_kind(trace.names[number]).kind == "communication"]
    return np.select((category >= COPY, np.isin(name, sent)), (MEMORY, COMMUNICATION), COMPUTE).astype(np.int8)
