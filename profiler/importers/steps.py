"""The steps that a trace marks, and when the GPU reached them."""

import re
from dataclasses import dataclass

import numpy as np

from profiler.importers.columns import ANNOTATION, OPERATOR
from profiler.importers.intervals import Integers, Mask
from profiler.importers.kineto import Trace
from profiler.importers.work import FETCH, UPDATE, GpuWork

MARK = "profile-train step"
"""The agent's mark at a step boundary, equal to `profiler.agent.window.MARK`; a test compares the two."""
PROFILER_STEP = "ProfilerStep#"
"""Prefix of torch.profiler's own step ranges, made by `schedule` or `step()`."""
MARKED = 2
"""Minimum number of steps marked by torch.profiler for them to count, however many batches each has."""
FEWEST_BATCHES = 4
"""Minimum batch fetches to use as step boundaries if no steps are marked: three whole steps (assumption)."""
_NUMBER = re.compile(rf"{PROFILER_STEP}\s*(\d{{1,15}})$")


@dataclass(frozen=True, slots=True)
class Steps:
    """The step boundaries, in nanoseconds of the trace."""

    host: Integers
    """When each step began on the host, and the end of the last.

    Without marks these are the start and end of the trace.
    """
    reached: Integers
    """When the GPU reached each boundary; `host` without GPU work.

    It reaches a boundary when it has done all work launched before it.
    """
    marked: bool
    first: int
    """When the first marked step began on the host; without marks the same as `begin`."""

    @property
    def number(self) -> int:
        """Return the number of marked steps."""
        return len(self.host) - 1 if self.marked else 0

    @property
    def begin(self) -> int:
        """Return the start of the analyzed time."""
        return int(self.reached[0])

    @property
    def end(self) -> int:
        """Return the end of the analyzed time."""
        return int(self.reached[-1])

    @property
    def typical(self) -> int:
        """Return the position of the step of median length; if there are two, the shorter."""
        lengths = np.diff(self.reached)
        return int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])

    def asked_in(self, work: GpuWork) -> Mask:
        """Return which work the host launched in these steps; without marks, all."""
        moments = work.asked
        return np.asarray(
            (moments >= self.host[0]) & (moments < self.host[-1]) if self.marked else np.ones(len(work), bool)
        )


def steps_of(trace: Trace, work: GpuWork) -> Steps:
    """Return the marked steps.

    On a GPU the first of several is left out: it waits for work launched before the trace.
    """
    host, ranges = _marks(trace), work if len(work) else trace.ranges
    if len(host) < 2:
        host = np.array([ranges.start.min(), ranges.end.max()])
        return Steps(host, host, False, int(host[0]))
    moments = work.asked if len(work) else ranges.start[ranges.category == OPERATOR]
    if len(host) > 2 and not ((moments >= host[-2]) & (moments < host[-1])).any():
        host = host[:-1]  # the last launches nothing: the profiler was stopped after its `step()`
    lead_in = 1 if len(work) and len(host) > 2 else 0
    return Steps(host[lead_in:], _reached(host, work)[lead_in:], True, int(host[0]))


def numbers(trace: Trace, steps: Steps) -> list[int]:
    """Return torch.profiler's number of each step, which identifies steps across ranks; else its position."""
    ranges = trace.ranges
    rows = np.flatnonzero(np.isin(ranges.start, steps.host[:-1]) & (ranges.category == ANNOTATION))
    matches = ((int(ranges.start[row]), _NUMBER.match(trace.names[ranges.name[row]])) for row in rows)
    by_start = {start: int(match[1]) for start, match in matches if match}
    return [by_start.get(start, position) for position, start in enumerate(steps.host[:-1].tolist())]


def _reached(host: Integers, work: GpuWork) -> Integers:
    order = np.argsort(work.asked, kind="stable")
    ends = np.maximum.accumulate(work.end[order])
    counts = np.searchsorted(work.asked[order], host, "left")
    return np.maximum(host, np.where(counts > 0, np.append(ends, 0)[counts - 1], host))


def _marks(trace: Trace) -> Integers:
    """Return the agent's marks, or else the starts of torch.profiler's steps and the last end.

    If torch.profiler marked fewer than two steps, the loop's batch fetches are used instead, if possible.
    """
    ranges = trace.ranges
    agent_marks = trace.named(lambda name: name == MARK) & np.isin(ranges.category, (OPERATOR, ANNOTATION))
    if agent_marks.any():
        return np.unique(ranges.start[agent_marks])
    profiler_marks = trace.annotated(PROFILER_STEP)
    starts = np.unique(ranges.start[profiler_marks])
    if len(starts) < MARKED and len(batches := _batches(trace)):
        return batches
    if not len(starts):
        return starts
    return np.append(starts, max(int(ranges.end[profiler_marks].max()), int(starts[-1]) + 1))


def _batches(trace: Trace) -> Integers:
    """Return the start of each batch fetch; empty if there are few, several loops, or several batches per step."""
    ranges = trace.ranges
    rows = np.flatnonzero(trace.annotated(FETCH))
    updates = np.count_nonzero(trace.annotated(UPDATE))
    several = len(np.unique(ranges.name[rows])) > 1 or len(np.unique(ranges.thread[rows])) > 1
    if len(rows) < FEWEST_BATCHES or several or 0 < updates < len(rows) - 1:
        return np.empty(0, np.int64)
    return ranges.start[rows]
