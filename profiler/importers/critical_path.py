"""The critical path of a step: a chain of host and GPU work in which each link waited for the one before.

It is followed backward from the step's end. A kernel began late for one of two reasons: the work before it had not
ended (the chain continues there), or the host launched it late (the chain continues at the call). The host was late
because of everything it did since it last waited for the GPU; then the chain continues at the work it waited for.

Traces do not record which stream waited for which. A kernel is assumed to have waited for the work that ended last
before it began.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from profiler.importers.intervals import Spans, span
from profiler.importers.work import COMMUNICATION, COMPUTE, MEMORY, GpuWork, HostActivity

Part = Literal["compute", "communication", "memory", "gpu_gap", "launch", "data", "host", "sync"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Parts of a critical path.

- compute, communication, memory: GPU work of three kinds.
- gpu_gap: the time between two pieces of GPU work that had both been launched.
- launch: from a launching call to its work.
- data, host: the host fetching a batch, or doing anything else.
- sync: from the end of awaited work to the return of the waiting call.
"""


_ON_GPU: dict[int, Part] = {COMPUTE: "compute", COMMUNICATION: "communication", MEMORY: "memory"}


@dataclass(frozen=True, slots=True)
class Link:
    """A stretch of the chain, in nanoseconds."""

    part: Part
    start: int
    end: int


def critical_path(work: GpuWork, host: HostActivity, begin: int, end: int) -> list[Link]:
    """Return the critical path of the step from `begin` to `end`, first link first, without gaps."""
    links, moment = list[Link](), end
    for part, start in _back(work, host, begin, end):
        if max(start, begin) < moment:
            links.append(Link(part, max(start, begin), moment))
            moment = links[-1].start
    return links[::-1]


def seconds(path: Iterable[Link]) -> dict[str, float]:
    """Return the seconds of each part that occurs."""
    sums: dict[Part, float] = defaultdict(float)
    for link in path:
        sums[link.part] += (link.end - link.start) * 1e-9
    return {part: sums[part] for part in PARTS if part in sums}


def _back(work: GpuWork, host: HostActivity, begin: int, end: int) -> Iterator[tuple[Part, int]]:
    """Yield each link's part and start, the last link first; a link ends where the one yielded before it starts."""
    by_end = work.where(np.argsort(work.end, kind="stable"))
    # The step ends with the GPU work that ends last; if none ends at `end`, it ends on the host.
    moment, place = end, _last_ended(by_end, end)
    on_gpu = place >= 0 and by_end.end[place] == end
    while moment > begin:
        if on_gpu:
            start = int(by_end.start[place])
            yield _ON_GPU[int(by_end.kind[place])], start
            previous, has_call = min(_last_ended(by_end, start), place - 1), by_end.call[place] >= 0
            ready_at = int(by_end.end[previous]) if previous >= 0 else begin
            called_at = int(by_end.call_start[place]) if has_call else ready_at
            on_gpu = called_at <= ready_at and (previous >= 0 or not has_call)
            moment, place = min(ready_at if on_gpu else called_at, start), previous
            yield "gpu_gap" if on_gpu else "launch", moment
        else:
            wait_end, place = _awaited(by_end, host.waits, begin, moment, place)
            fetches = host.fetches & span(wait_end, moment)
            for fetch_start, fetch_end in zip(fetches.start[::-1].tolist(), fetches.end[::-1].tolist(), strict=True):
                yield "host", fetch_end
                yield "data", fetch_start
            yield "host", wait_end
            moment, on_gpu = int(by_end.end[place]) if place >= 0 else begin, True
            yield "sync", moment


def _awaited(done: GpuWork, waits: Spans, begin: int, moment: int, place: int) -> tuple[int, int]:
    """Return the end of the host's last wait before `moment` in which GPU work ended, and the place of that work.

    The place is at most `place`. If there is no such wait, return `begin` and -1.
    """
    for index in range(int(np.searchsorted(waits.end, moment, "right")) - 1, -1, -1):
        wait_end = int(waits.end[index])
        work_place = min(_last_ended(done, wait_end), place)
        if wait_end <= begin:
            break
        if work_place >= 0 and done.end[work_place] > waits.start[index]:
            return wait_end, work_place
    return begin, -1


def _last_ended(done: GpuWork, moment: int) -> int:
    return int(np.searchsorted(done.end, moment, "right")) - 1
