"""The steps that a trace marks, and when the GPU reached them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profiler.importers.breakdown import named
from profiler.importers.columns import ANNOTATION, OPERATOR, Integers, Mask
from profiler.importers.kineto import Trace
from profiler.importers.work import Work
from profiler.recorder.kernels import MARK

PROFILER_STEP = "ProfilerStep#"
"""What torch.profiler calls its own, with `schedule` or `step()`."""
_NUMBER = re.compile(rf"{PROFILER_STEP}\s*(\d{{1,15}})$")


@dataclass(frozen=True, slots=True)
class Steps:
    """Nanoseconds of the trace."""

    host: Integers
    """When each began on the host, and the end of the last; without marks the begin and end of all that there is."""
    reached: Integers
    """The same as the GPU reached it: once all that was asked for before it was done. Without GPU work as `host`."""
    marked: bool

    @property
    def number(self) -> int:
        """Marked steps."""
        return len(self.host) - 1 if self.marked else 0

    @property
    def begin(self) -> int:
        """Of what is analysed."""
        return int(self.reached[0])

    @property
    def end(self) -> int:
        """As above."""
        return int(self.reached[-1])

    def asked_in(self, work: Work) -> Mask:
        """Which work the host asked for in these steps; without marks, all."""
        asked = work.asked
        return np.asarray(
            (asked >= self.host[0]) & (asked < self.host[-1]) if self.marked else np.ones(len(work), bool)
        )


def steps_of(trace: Trace, work: Work) -> Steps:
    """The marked steps, on a GPU without the first of several: it waits for work that was launched before the trace."""
    host = _marks(trace)
    marked = len(host) > 1
    if not marked:
        ranges = trace.ranges
        if len(work):
            host = np.array([work.start.min(), work.end.max()])
        else:
            host = np.array([ranges.start.min(), ranges.end.max()])
        return Steps(host, host, False)
    host = _without_stub(host, work.asked if len(work) else trace.ranges.start[trace.ranges.category == OPERATOR])
    if not len(work):
        return Steps(host, host, True)
    reached = _reached(host, work)
    return Steps(host[1:], reached[1:], True) if len(host) > 2 else Steps(host, reached, True)


def numbers(trace: Trace, steps: Steps) -> list[int]:
    """What torch.profiler counts each step as, so that those of several ranks can be told to be the same; else their
    order."""
    ranges = trace.ranges
    rows = np.flatnonzero(np.isin(ranges.start, steps.host[:-1]) & (ranges.category == ANNOTATION))
    matches = ((int(ranges.start[row]), _NUMBER.match(trace.names[ranges.name[row]])) for row in rows)
    told = {start: int(match[1]) for start, match in matches if match}
    return [told.get(start, position) for position, start in enumerate(steps.host[:-1].tolist())]


def _without_stub(host: Integers, asked: Integers) -> Integers:
    """A last step in which nothing is asked for is none: the profiler was stopped after its `step()`."""
    if len(host) > 2 and not ((asked >= host[-2]) & (asked < host[-1])).any():
        return host[:-1]
    return host


def _reached(host: Integers, work: Work) -> Integers:
    order = np.argsort(work.asked, kind="stable")
    done = np.maximum.accumulate(work.end[order])
    before = np.searchsorted(work.asked[order], host, "left")
    return np.maximum(host, np.where(before > 0, np.append(done, 0)[before - 1], host))


def _marks(trace: Trace) -> Integers:
    """Our own where there are any; of torch.profiler's all begins, and the last end."""
    ranges = trace.ranges
    ours = named(trace, lambda name: name == MARK) & np.isin(ranges.category, (OPERATOR, ANNOTATION))
    if ours.any():
        return np.unique(ranges.start[ours])
    theirs = named(trace, lambda name: name.startswith(PROFILER_STEP)) & (ranges.category == ANNOTATION)
    if not theirs.any():
        return np.empty(0, np.int64)
    starts = np.unique(ranges.start[theirs])
    return np.append(starts, max(int(ranges.end[theirs].max()), int(starts[-1]) + 1))
