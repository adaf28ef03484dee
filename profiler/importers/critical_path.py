"""The critical path of a step: host and GPU work of which each link waited for the one before.

It is followed backward from the step's end. A kernel began late for one of two reasons: the work before it had not
ended (the chain continues there), or the host launched it late (the chain continues at the call). The host was late
because of everything it did since it last waited for the GPU; then the chain continues at the work it waited for.

Traces do not record which stream waited for which. The work that ended last before a kernel began is taken for it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from profiler.importers.intervals import span
from profiler.importers.work import COMMUNICATION, COMPUTE, GpuWork, HostActivity

Part = Literal["compute", "communication", "memory", "gpu_gap", "launch", "data", "host", "sync"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Parts of a critical path.

- compute, communication, memory: GPU work of three kinds.
- gpu_gap: the GPU between two pieces of work that had both been launched.
- launch: from a launching call to its work.
- data, host: the host fetching a batch, or doing anything else.
- sync: from the end of awaited work to the return of the waiting call.
"""


@dataclass(frozen=True, slots=True)
class Link:
    """A stretch of the chain, in nanoseconds."""

    part: Part
    start: int
    end: int


def critical_path(work: GpuWork, host: HostActivity, begin: int, end: int) -> list[Link]:
    """Return the critical path of the step from `begin` to `end`, first link first, without gaps."""
    walk = _Walk(work, host, begin)
    walk.back_from(end)
    return walk.links[::-1]


def seconds(path: Iterable[Link]) -> dict[str, float]:
    """Return the seconds of each part that occurs."""
    sums: dict[Part, float] = defaultdict(float)
    for link in path:
        sums[link.part] += (link.end - link.start) * 1e-9
    return {part: sums[part] for part in PARTS if part in sums}


class _Walk:
    def __init__(self, work: GpuWork, host: HostActivity, begin: int) -> None:
        self.links: list[Link] = []
        self._work, self._host, self._begin = work, host, begin
        self._order = np.argsort(work.end, kind="stable")
        self._ends = work.end[self._order]

    def back_from(self, end: int) -> None:
        # Whatever the GPU ends with, the step ends with: what it waited for is the last to end.
        moment, place = end, self._last_ended(end)
        on_gpu = place >= 0 and self._ends[place] == end
        while moment > self._begin:
            if on_gpu:
                moment, place, on_gpu = self._gpu(moment, place)
            else:
                moment, place, on_gpu = self._asked(moment, place)

    def _gpu(self, moment: int, place: int) -> tuple[int, int, bool]:
        """Step back over a piece of GPU work, to what it waited for."""
        row = int(self._order[place])
        work = self._work
        start = int(work.start[row])
        part: Part = {COMPUTE: "compute", COMMUNICATION: "communication"}.get(int(work.kind[row]), "memory")  # type: ignore[assignment]
        self._add(part, start, moment)
        before = min(self._last_ended(start), place - 1)
        ready = int(self._ends[before]) if before >= 0 else self._begin
        called = int(work.call_start[row]) if work.call[row] >= 0 else ready
        if called > ready or (before < 0 and work.call[row] >= 0):
            self._add("launch", min(called, start), start)
            return min(called, start), before, False
        self._add("gpu_gap", min(ready, start), start)
        return min(ready, start), before, before >= 0

    def _asked(self, moment: int, place: int) -> tuple[int, int, bool]:
        """Step back over the host's activity before `moment`, to the GPU work it had waited for, if any."""
        waits = self._host.waits
        at = int(np.searchsorted(waits.end, moment, "right")) - 1
        while at >= 0 and waits.end[at] > self._begin:
            awaited = min(self._last_ended(int(waits.end[at])), place)
            if awaited >= 0 and self._ends[awaited] > waits.start[at]:
                back, done = int(waits.end[at]), int(self._ends[awaited])
                self._host_links(back, moment)
                self._add("sync", done, back)
                return done, awaited, True
            at -= 1
        self._host_links(self._begin, moment)
        return self._begin, -1, False

    def _host_links(self, start: int, end: int) -> None:
        """Add the host's time, with fetching as links of its own."""
        start = max(start, self._begin)
        fetches, moment = self._host.fetches & span(start, end), end
        for first, last in zip(fetches.start[::-1].tolist(), fetches.end[::-1].tolist(), strict=True):
            self._add("host", last, moment)
            self._add("data", first, last)
            moment = first
        self._add("host", start, moment)

    def _last_ended(self, moment: int) -> int:
        return int(np.searchsorted(self._ends, moment, "right")) - 1

    def _add(self, part: Part, start: int, end: int) -> None:
        start = max(start, self._begin)
        if end > start:
            self.links.append(Link(part, start, end))
