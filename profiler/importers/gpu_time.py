"""Split a stretch of a trace into the fields of `schema.Window`."""

import re
from typing import Any, NamedTuple

import numpy as np

from profiler.importers.breakdown import HostActivity, is_copy, named, why_idle
from profiler.importers.columns import CALL
from profiler.importers.intervals import Intervals, Spans, span
from profiler.importers.kineto import Trace
from profiler.importers.work import COMMUNICATION, GpuWork

STALL = 1_000_000
"""Nanoseconds from which a gap is a stall: a host that launches one small kernel after the other needs 10 to 300 us for
each under the profiler, as the gaps of public traces show.
"""

_ALLOCATION = re.compile(r"(cuda|hip)(Malloc|Free)(Async)?$|cuMem(Create|Map|SetAccess|Unmap|Release)$")
"""Calls that allocate or free device memory, those of expandable segments included; none of pinned memory."""


class Shares(NamedTuple):
    """Disjoint sets of time that together make up the whole."""

    running: Spans
    """Time in which anything ran except collectives and copies from and to the host."""
    communication: Spans
    """Time in which collectives ran, but nothing of `running`."""
    data: Spans
    h2d: Spans
    sync: Spans
    launch: Spans
    other: Spans


def shares(trace: Trace, work: GpuWork, host: HostActivity, begin: int, end: int) -> Shares:
    """Split the time from `begin` to `end`."""
    incoming, outgoing = is_copy(trace, work, "HtoD"), is_copy(trace, work, "DtoH")
    collective = work.kind == COMMUNICATION
    running = work.spans(~incoming & ~outgoing & ~collective).within(begin, end)
    sent = work.spans(collective).within(begin, end) - running
    idle = span(begin, end) - running - sent
    data = idle & host.fetches
    idle -= data
    h2d = idle & work.spans(incoming)
    idle -= h2d
    reading = idle & work.spans(outgoing)
    sync, launch, queued = why_idle(idle - reading, work.spans(), work, host, begin)
    return Shares(
        running=running,
        communication=sent,
        data=data,
        h2d=h2d,
        sync=sync | (reading & host.waits),
        launch=launch,
        other=queued | (reading - host.waits),
    )


def account(trace: Trace, work: GpuWork, parts: Shares, begin: int, end: int) -> dict[str, Any]:
    """Return the fields of `schema.Window` that say how the time was spent, in seconds.

    `busy`, `h2d` and the four idle classes add up to the whole. `communication` is all of it, hidden or not. `scatter`
    is that of a sum of independent pieces, the square root of the sum of their squares, over the sum.
    """
    copies, pageable = is_copy(trace, work, "HtoD"), is_copy(trace, work, "Pageable")
    known = bool((pageable | is_copy(trace, work, "Pinned"))[copies].all())
    gaps = parts.launch.length
    pieces: list[Intervals] = [work.within(begin, end), parts.data, parts.sync, parts.launch, parts.other]
    lengths = np.concatenate([each.length for each in pieces]).astype(np.float64)
    return {
        "busy": (parts.running.total + parts.communication.total) * 1e-9,
        "h2d": parts.h2d.total * 1e-9,
        "h2d_pageable": (parts.h2d & work.spans(copies & pageable)).total * 1e-9 if known else None,
        "idle_data": parts.data.total * 1e-9,
        "idle_sync": parts.sync.total * 1e-9,
        "idle_launch": parts.launch.total * 1e-9,
        "idle_stalled": int(gaps[gaps > STALL].sum()) * 1e-9,
        "idle_allocating": (parts.launch & _allocating(trace)).total * 1e-9,
        "scatter": float(np.sqrt(np.square(lengths).sum())) / (end - begin),
        "idle_other": parts.other.total * 1e-9,
        "communication": work.spans(work.kind == COMMUNICATION).within(begin, end).total * 1e-9,
        "communication_exposed": parts.communication.total * 1e-9,
    }


def _allocating(trace: Trace) -> Spans:
    """Return the time in calls that allocate or free device memory."""
    calls = trace.ranges.category == CALL
    return trace.ranges.spans(calls & named(trace, lambda name: _ALLOCATION.match(name) is not None))
