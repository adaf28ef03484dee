"""The GPU's time between two moments: computing, communication, moving memory, or idle and why.

Each nanosecond belongs to exactly one part, tried in this order: a kernel computed; a collective ran while nothing
computed; a copy or fill ran while neither did; idle. A gap in which nothing ran is idle for the first of these reasons
that applies:

- data: the host was fetching a batch;
- sync: the GPU had run out of work while the host waited for it;
- launch: the host was late with the next launch;
- queued: the work had been queued in time, so it waited for another stream or for the GPU itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from profiler.importers.columns import CALL
from profiler.importers.intervals import Intervals, Spans, span
from profiler.importers.kineto import Trace
from profiler.importers.work import COMMUNICATION, COMPUTE, MEMORY, NOWHERE, GpuWork, HostActivity, is_copy

STALL = 1_000_000
"""Longest gap that is not a stall, in nanoseconds. Under the profiler, a host that launches small kernels one after the
other needs 10 to 300 us for each, as the gaps in public traces show.
"""

_ALLOCATION = re.compile(r"(cuda|hip)(Malloc|Free)(Async)?$|cuMem(Create|Map|SetAccess|Unmap|Release)$")
"""Calls that allocate or free device memory, including expandable segments but not pinned memory."""


class Shares(NamedTuple):
    """Disjoint sets of time that together make up the whole, for a step's phases.

    Copies between host and GPU count only while nothing else runs.
    """

    running: Spans
    """Time in which anything ran except collectives and copies from and to the host."""
    communication: Spans
    """Time in which collectives ran, but nothing of `running`."""
    data: Spans
    h2d: Spans
    sync: Spans
    launch: Spans
    other: Spans


def parts_of(work: GpuWork, host: HostActivity, begin: int, end: int) -> dict[str, Spans]:
    """Return the time of each part from `begin` to `end`."""
    compute, communication, memory = (
        work.spans(work.kind == kind).within(begin, end) for kind in (COMPUTE, COMMUNICATION, MEMORY)
    )
    exposed = communication - compute
    active = work.spans()
    idle = span(begin, end) - active
    sync, launch, queued = _why_idle(idle - host.fetches, active, work, host, begin)
    return {
        "compute": compute,
        "communication_exposed": exposed,
        "memory_exposed": memory - compute - exposed,
        "idle_data": idle & host.fetches,
        "idle_sync": sync,
        "idle_launch": launch,
        "idle_queued": queued,
    }


def _why_idle(gaps: Spans, active: Spans, work: GpuWork, host: HostActivity, begin: int) -> tuple[Spans, Spans, Spans]:
    """Split `gaps` into those due to synchronization, those due to late launches, and the rest."""
    previous = np.searchsorted(active.end, gaps.start, "right") - 1
    busy_end = np.where(previous >= 0, np.append(active.end, 0)[previous], begin)
    next_work = np.searchsorted(work.start, gaps.end, "left")
    call_end = np.append(work.call_end, NOWHERE)[next_work]
    # A call that returned before the GPU ran out of work was in time; a call missing from the trace counts as in time.
    is_queued = (next_work < len(work)) & (call_end <= busy_end)
    wait = np.searchsorted(host.waits.start, busy_end, "right") - 1
    is_waited = (wait >= 0) & (np.append(host.waits.end, 0)[wait] >= busy_end)
    return gaps.where(~is_queued & is_waited), gaps.where(~is_queued & ~is_waited), gaps.where(is_queued)


def shares(trace: Trace, work: GpuWork, host: HostActivity, parts: Mapping[str, Spans], begin: int, end: int) -> Shares:
    """Split the time from `begin` to `end`, given its parts."""
    is_incoming, is_outgoing = is_copy(trace, work, "HtoD"), is_copy(trace, work, "DtoH")
    is_collective = work.kind == COMMUNICATION
    running = work.spans(~is_incoming & ~is_outgoing & ~is_collective).within(begin, end)
    communication = work.spans(is_collective).within(begin, end) - running
    idle = span(begin, end) - running - communication
    data = idle & host.fetches
    h2d = (idle - data) & work.spans(is_incoming)
    d2h = (idle - data - h2d) & work.spans(is_outgoing)
    return Shares(
        running=running,
        communication=communication,
        data=data,
        h2d=h2d,
        sync=parts["idle_sync"] | (d2h & host.waits),
        launch=parts["idle_launch"],
        other=parts["idle_queued"] | (d2h - host.waits),
    )


def breakdown(work: GpuWork, parts: Mapping[str, Spans], begin: int, end: int) -> dict[str, Any]:
    """Return the fields of `schema.TraceFact` that show how the time was spent, in seconds.

    `overlap` is the share of the communication that compute hides.
    """
    communication = work.spans(work.kind == COMMUNICATION).within(begin, end).total
    hidden = communication - parts["communication_exposed"].total
    return {
        "parts": {name: spans.total * 1e-9 for name, spans in parts.items()},
        "longest_idle": int((span(begin, end) - work.spans()).length.max(initial=0)) * 1e-9,
        "overlap": hidden / communication if communication else None,
    }


def account(trace: Trace, work: GpuWork, shared: Shares, begin: int, end: int) -> dict[str, Any]:
    """Return the fields of `schema.Window` that show how the time was spent, in seconds.

    `busy`, `h2d` and the four idle classes add up to the whole. `communication` includes hidden communication.
    `scatter` assumes independent pieces: the square root of the sum of their squares, divided by the whole.
    """
    copies, pageable = is_copy(trace, work, "HtoD"), is_copy(trace, work, "Pageable")
    is_pinning_known = bool((pageable | is_copy(trace, work, "Pinned"))[copies].all())
    gaps = shared.launch.length
    calls = trace.ranges.category == CALL
    allocations = trace.ranges.spans(calls & trace.named(lambda name: _ALLOCATION.match(name) is not None))
    pieces: list[Intervals] = [work.within(begin, end), shared.data, shared.sync, shared.launch, shared.other]
    lengths = np.concatenate([piece.length for piece in pieces]).astype(np.float64)
    nanoseconds = {
        "busy": shared.running.total + shared.communication.total,
        "h2d": shared.h2d.total,
        "idle_data": shared.data.total,
        "idle_sync": shared.sync.total,
        "idle_launch": shared.launch.total,
        "idle_stalled": int(gaps[gaps > STALL].sum()),
        "idle_allocating": (shared.launch & allocations).total,
        "idle_other": shared.other.total,
        "communication": work.spans(work.kind == COMMUNICATION).within(begin, end).total,
        "communication_exposed": shared.communication.total,
    }
    return {
        **{name: time * 1e-9 for name, time in nanoseconds.items()},
        "h2d_pageable": (shared.h2d & work.spans(copies & pageable)).total * 1e-9 if is_pinning_known else None,
        "scatter": float(np.sqrt(np.square(lengths).sum())) / (end - begin),
    }
