"""Where the GPU's time went between two step boundaries, and why it was idle.

Every moment belongs to one class, tried in this order: a kernel ran (busy); the host was fetching a batch (data);
a copy from the host ran (h2d); the GPU had run dry while the host waited for it (sync); the next launch came too late
(launch); what is left had been queued in time, and waited for another stream or for the GPU itself (other).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from profiler.recorder.intervals import Interval, difference, intersection, length, union
from profiler.recorder.kernel_kinds import kernel_kind
from profiler.recorder.trace import Event

WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver"})


class Work(NamedTuple):
    """One kernel, copy or fill, and the host call that launched it, if the trace has it."""

    event: Event
    call: Event | None

    @property
    def asked(self) -> float:
        """When the host asked for it."""
        return self.event.start if self.call is None else self.call.start


class GpuTime(NamedTuple):
    """Seconds, in the terms of `schema.Window`; busy, h2d and the four idle classes add up to the whole."""

    busy: float
    h2d: float
    h2d_pageable: float | None
    idle_data: float
    idle_sync: float
    idle_launch: float
    idle_other: float
    communication: float
    communication_exposed: float


def launched(events: list[Event]) -> list[Work]:
    """All GPU work of the trace, in the order it ran."""
    calls = {event.correlation: event for event in events if event.category in _CALLS}
    calls.pop(None, None)
    return sorted(
        (Work(event, calls.get(event.correlation)) for event in events if event.category in WORK),
        key=lambda work: work.event.start,
    )


def reached(boundary: float, work: list[Work]) -> float:
    """When the GPU passes a step boundary of the host: once all that was asked for before it is done."""
    return max([boundary, *(each.event.end for each in work if each.asked < boundary)])


def account(begin: float, end: float, work: list[Work], events: list[Event]) -> GpuTime:
    """Share out the time from `begin` to `end`, as the GPU reached them."""
    whole = [(begin, end)]

    def time(chosen: Iterable[Event]) -> list[Interval]:
        return intersection(union((event.start, event.end) for event in chosen), whole)

    incoming = [each.event for each in work if _is_copy(each.event, "HtoD")]
    outgoing = [each.event for each in work if _is_copy(each.event, "DtoH")]
    running = [e for e, _ in work if not _is_copy(e, "HtoD") and not _is_copy(e, "DtoH")]
    collectives = [event for event in running if kernel_kind(event.name).kind == "communication"]
    compute = [event for event in running if kernel_kind(event.name).kind != "communication"]

    busy = time(running)
    idle = difference(whole, busy)
    data = intersection(idle, time(event for event in events if _is_fetch(event)))
    idle = difference(idle, data)
    h2d = intersection(idle, time(incoming))
    idle = difference(idle, h2d)
    waits = [(event.start, event.end) for event in events if event.category in _CALLS and "ynchronize" in event.name]
    # Any copy to the host whose call returned only when it was done has made the host wait, too.
    waits += [
        (each.call.start, each.call.end)
        for each in work
        if each.call is not None and _is_copy(each.event, "DtoH") and each.call.end >= each.event.end
    ]
    waiting = union(waits)
    reading = intersection(idle, time(outgoing))
    awaited = intersection(reading, waiting)
    sync, launch, other = _why_idle(difference(idle, reading), work, waiting, begin)
    named = all("Pageable" in event.name or "Pinned" in event.name for event in incoming)
    collective = time(collectives)
    return GpuTime(
        busy=length(busy),
        h2d=length(h2d),
        h2d_pageable=length(intersection(h2d, time(e for e in incoming if "Pageable" in e.name))) if named else None,
        idle_data=length(data),
        idle_sync=sync + length(awaited),
        idle_launch=launch,
        idle_other=other + length(reading) - length(awaited),
        communication=length(collective),
        communication_exposed=length(difference(collective, time(compute))),
    )


def _why_idle(
    gaps: list[Interval], work: list[Work], waiting: list[Interval], begin: float
) -> tuple[float, float, float]:
    """Seconds of `gaps` due to synchronising, to late launches, and to something else."""
    sync = launch = other = 0.0
    active = union((each.event.start, each.event.end) for each in work)
    ends = [end for _, end in active]
    starts = [each.event.start for each in work]
    wait_starts = [start for start, _ in waiting]
    for start, end in gaps:
        before = bisect_right(ends, start) - 1
        dry = ends[before] if before >= 0 else begin
        following = bisect_left(starts, end)
        call = work[following].call if following < len(work) else None
        unknown = following < len(work) and call is None
        # A call that had returned before the GPU ran dry had queued its work in time.
        if unknown or (call is not None and call.end <= dry):
            other += end - start
            continue
        wait = bisect_right(wait_starts, dry) - 1
        if wait >= 0 and waiting[wait][1] >= dry:
            sync += end - start
        else:
            launch += end - start
    return sync, launch, other


def _is_fetch(event: Event) -> bool:
    return event.category == "user_annotation" and event.name.startswith("enumerate(DataLoader)#")


def _is_copy(event: Event, way: str) -> bool:
    return event.category == "gpu_memcpy" and way in event.name
