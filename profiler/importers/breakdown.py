"""The GPU's time between two moments: computing, communication, moving memory, or idle and why.

Each nanosecond belongs to exactly one part, tried in this order: a kernel computed; a collective ran while nothing
computed; a copy or fill ran while neither did; idle. A gap in which nothing ran is idle for the first of these reasons
that applies:

- data: the host was fetching a batch;
- sync: the GPU had run dry while the host waited for it;
- launch: the host was late with the next launch;
- queued: the work had been queued in time, so it waited for another stream or for the GPU itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profiler.importers.columns import ANNOTATION, CALL, COPY
from profiler.importers.intervals import Integers, Mask, Spans, span, union
from profiler.importers.kineto import Trace
from profiler.importers.work import COMMUNICATION, COMPUTE, MEMORY, NOWHERE, GpuWork

SLOW_CALL = 50_000
"""Nanoseconds from which a call counts as slow.

A launch takes 5 to 10 us; one of more than 50 has waited for a full queue, a lock or memory.
"""
PARTS = ("compute", "communication_exposed", "memory_exposed", "idle_data", "idle_sync", "idle_launch", "idle_queued")
FETCH = "enumerate(DataLoader)#"
"""Prefix that torch.utils.data gives the ranges of `next(loader)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """The parts of a stretch of GPU time, in nanoseconds."""

    parts: dict[str, int]
    """By the names of PARTS; they add up to the whole."""
    communication: int
    """Time in which any collective ran, hidden by compute or not."""
    longest_idle: int
    """Length of the longest gap in which nothing ran."""

    @property
    def overlap(self) -> int:
        """Return the part of `communication` that compute hides."""
        return self.communication - self.parts["communication_exposed"]


def breakdown(work: GpuWork, host: HostActivity, begin: int, end: int) -> Breakdown:
    """Return the breakdown of the time from `begin` to `end`."""
    idle = span(begin, end) - work.spans()
    return Breakdown(
        parts={name: spans.total for name, spans in parts_of(work, host, begin, end).items()},
        communication=work.spans(work.kind == COMMUNICATION).within(begin, end).total,
        longest_idle=int(idle.length.max(initial=0)),
    )


def parts_of(work: GpuWork, host: HostActivity, begin: int, end: int) -> dict[str, Spans]:
    """Return when each of PARTS was, from `begin` to `end`."""
    compute, collective, memory = (
        work.spans(work.kind == kind).within(begin, end) for kind in (COMPUTE, COMMUNICATION, MEMORY)
    )
    exposed = collective - compute
    moving = memory - compute - exposed
    active = work.spans()
    idle = span(begin, end) - active
    data = idle & host.fetches
    why = why_idle(idle - data, active, work, host, begin)
    return dict(zip(PARTS, (compute, exposed, moving, data, *why), strict=True))


@dataclass(frozen=True, slots=True)
class HostActivity:
    """The host's activity that explains an idle GPU."""

    fetches: Spans
    """Time in `next(loader)`."""
    waits: Spans
    """Time in calls that return only once the GPU has done something."""
    calls: Integers
    """Positions of these calls among the trace's ranges."""


def host_of(trace: Trace, work: GpuWork) -> HostActivity:
    """Return the host activity of all threads."""
    ranges = trace.ranges
    waiting = named(trace, lambda name: "ynchronize" in name) & (ranges.category == CALL)
    # Any copy whose call returned only when it was done has made the host wait, too; so does one from pageable memory,
    # which the driver first copies into a buffer of its own.
    copies = (is_copy(trace, work, "DtoH") | is_copy(trace, work, "HtoD")) & work.launched
    staged = is_copy(trace, work, "Pageable -> Device") & (work.call_end - work.call_start > SLOW_CALL)
    blocking = copies & ((work.call_end >= work.end) | staged)
    return HostActivity(
        ranges.spans(annotated(trace, FETCH)),
        union(
            np.concatenate((ranges.start[waiting], work.call_start[blocking])),
            np.concatenate((ranges.end[waiting], work.call_end[blocking])),
        ),
        np.concatenate((np.flatnonzero(waiting), work.call[blocking])),
    )


def why_idle(gaps: Spans, active: Spans, work: GpuWork, host: HostActivity, begin: int) -> tuple[Spans, Spans, Spans]:
    """Split `gaps` into those due to synchronization, those due to late launches, and the rest."""
    before = np.searchsorted(active.end, gaps.start, "right") - 1
    dry = np.where(before >= 0, np.append(active.end, 0)[before], begin)
    following = np.searchsorted(work.start, gaps.end, "left")
    last = following >= len(work)
    call_end = np.append(work.call_end, NOWHERE)[following]
    # A call that had returned before the GPU ran dry had queued its work in time; of one not seen nothing is known.
    queued = ~last & (call_end <= dry)
    wait = np.searchsorted(host.waits.start, dry, "right") - 1
    waited = (wait >= 0) & (np.append(host.waits.end, 0)[wait] >= dry)
    sync = ~queued & waited
    late = ~queued & ~waited
    return tuple(gaps.where(chosen) for chosen in (sync, late, queued))  # type: ignore[return-value]


def named(trace: Trace, wanted: Callable[[str], bool]) -> Mask:
    """Return which ranges have a wanted name."""
    chosen = np.fromiter((wanted(name) for name in trace.names), bool, len(trace.names))
    return np.asarray(chosen[trace.ranges.name])


def annotated(trace: Trace, prefix: str | tuple[str, ...]) -> Mask:
    """Return which ranges are annotations whose name begins like this."""
    return np.asarray(named(trace, lambda name: name.startswith(prefix)) & (trace.ranges.category == ANNOTATION))


def is_copy(trace: Trace, work: GpuWork, way: str) -> Mask:
    """Return which work is a copy in that direction: "HtoD", "DtoH"."""
    chosen = np.fromiter((way in name for name in trace.names), bool, len(trace.names))
    return np.asarray(chosen[work.name] & (work.category == COPY))
