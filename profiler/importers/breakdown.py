"""Where the GPU's time went between two moments: computing, talking to other ranks, moving memory, or idle and why.

Each nanosecond belongs to one part, tried in this order: a kernel computed; a collective ran, hidden by none; a copy or
fill ran, hidden by neither; idle. A gap in which nothing ran is idle for the first of these reasons that applies: the
host was fetching a batch (data); the GPU had run dry while the host waited for it (sync); the host was late with the
next launch (launch); the work had been queued in time (queued): it waited for another stream, or for the GPU itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profiler.importers.columns import ANNOTATION, CALL, COPY, Mask
from profiler.importers.kineto import Trace
from profiler.importers.spans import Spans, difference, either, intersection, union, within
from profiler.importers.work import COMMUNICATION, COMPUTE, MEMORY, NOWHERE, Work

FETCH = "enumerate(DataLoader)#"
"""How torch.utils.data names the ranges of `next(loader)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Nanoseconds; all but `whole` and the three that may be hidden add up to `whole`."""

    whole: int
    compute: int
    communication_exposed: int
    memory_exposed: int
    idle_data: int
    idle_sync: int
    idle_launch: int
    idle_queued: int
    communication: int
    """In which any collective ran, hidden by computing or not."""
    memory: int
    overlap: int
    """Of `communication`, hidden by computing."""

    @property
    def idle(self) -> int:
        """For whatever reason."""
        return self.idle_data + self.idle_sync + self.idle_launch + self.idle_queued


def breakdown(work: Work, host: Host, begin: int, end: int) -> Breakdown:
    """Of the time from `begin` to `end`."""
    compute, collective, memory = (
        within(work.spans(work.kind == kind), begin, end) for kind in (COMPUTE, COMMUNICATION, MEMORY)
    )
    exposed = difference(collective, compute)
    computed_or_sent = either(compute, exposed)
    moving = difference(memory, computed_or_sent)
    active = work.spans(np.ones(len(work), bool))
    idle = difference(_whole(begin, end), active)
    data = intersection(idle, host.fetches)
    sync, launch, queued = why_idle(difference(idle, data), active, work, host, begin)
    return Breakdown(
        whole=end - begin,
        compute=compute.total,
        communication_exposed=exposed.total,
        memory_exposed=moving.total,
        idle_data=data.total,
        idle_sync=sync.total,
        idle_launch=launch.total,
        idle_queued=queued.total,
        communication=collective.total,
        memory=memory.total,
        overlap=collective.total - exposed.total,
    )


@dataclass(frozen=True, slots=True)
class Host:
    """What the host did that explains an idle GPU."""

    fetches: Spans
    """In `next(loader)`."""
    waits: Spans
    """In calls that return only when the GPU has done something."""


def host_of(trace: Trace, work: Work) -> Host:
    """Of all its threads."""
    ranges = trace.ranges
    fetching = named(trace, lambda name: name.startswith(FETCH)) & (ranges.category == ANNOTATION)
    waiting = named(trace, lambda name: "ynchronize" in name) & (ranges.category == CALL)
    # Any copy to the host whose call returned only when it was done has made the host wait, too.
    blocking = is_copy(trace, work, "DtoH") & work.launched & (work.call_end >= work.end)
    return Host(
        union(ranges.start[fetching], ranges.end[fetching]),
        union(
            np.concatenate((ranges.start[waiting], work.call_start[blocking])),
            np.concatenate((ranges.end[waiting], work.call_end[blocking])),
        ),
    )


def why_idle(gaps: Spans, active: Spans, work: Work, host: Host, begin: int) -> tuple[Spans, Spans, Spans]:
    """Those of `gaps` that are due to synchronising, to late launches, and to neither."""
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
    return tuple(Spans(gaps.start[chosen], gaps.end[chosen]) for chosen in (sync, late, queued))  # type: ignore[return-value]


def named(trace: Trace, wanted: Callable[[str], bool]) -> Mask:
    """Which ranges have such a name."""
    chosen = np.fromiter((wanted(name) for name in trace.names), bool, len(trace.names))
    return np.asarray(chosen[trace.ranges.name])


def is_copy(trace: Trace, work: Work, way: str) -> Mask:
    """Which work is a copy this way: "HtoD", "DtoH"."""
    chosen = np.fromiter((way in name for name in trace.names), bool, len(trace.names))
    return np.asarray(chosen[work.name] & (work.category == COPY))


def _whole(begin: int, end: int) -> Spans:
    return union(np.array([begin], np.int64), np.array([end], np.int64))
