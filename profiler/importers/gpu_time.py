"""A stretch of a trace in the terms of `schema.Window`: as `profiler.recorder.gpu_time` accounts for one of ours."""

from __future__ import annotations

import numpy as np

from profiler.importers.breakdown import Host, is_copy, why_idle
from profiler.importers.kineto import Trace
from profiler.importers.spans import difference, intersection, union, within
from profiler.importers.work import COMMUNICATION, Work
from profiler.recorder.gpu_time import GpuTime


def account(trace: Trace, work: Work, host: Host, begin: int, end: int) -> GpuTime:
    """Share out the time from `begin` to `end`."""
    whole = union(np.array([begin]), np.array([end]))
    incoming, outgoing = is_copy(trace, work, "HtoD"), is_copy(trace, work, "DtoH")
    running = ~incoming & ~outgoing
    collective = work.kind == COMMUNICATION
    idle = difference(whole, work.spans(running))
    busy = whole.total - idle.total
    data = intersection(idle, host.fetches)
    idle = difference(idle, data)
    h2d = intersection(idle, work.spans(incoming))
    idle = difference(idle, h2d)
    reading = intersection(idle, work.spans(outgoing))
    awaited = intersection(reading, host.waits)
    active = work.spans(np.ones(len(work), bool))
    sync, launch, queued = why_idle(difference(idle, reading), active, work, host, begin)
    names = [trace.names[number] for number in np.unique(work.name[incoming])]
    pageable = incoming & np.isin(work.name, [n for n, name in enumerate(trace.names) if "Pageable" in name])
    told = all("Pageable" in name or "Pinned" in name for name in names)
    sent = within(work.spans(collective), begin, end)
    return GpuTime(
        busy=busy * 1e-9,
        h2d=h2d.total * 1e-9,
        h2d_pageable=intersection(h2d, work.spans(pageable)).total * 1e-9 if told else None,
        idle_data=data.total * 1e-9,
        idle_sync=(sync.total + awaited.total) * 1e-9,
        idle_launch=launch.total * 1e-9,
        idle_other=(queued.total + reading.total - awaited.total) * 1e-9,
        communication=sent.total * 1e-9,
        communication_exposed=difference(sent, work.spans(running & ~collective)).total * 1e-9,
    )
