"""Exposed GPU time in place of host time: joins a step with the CUDA events that its process recorded.

On a GPU the host runs ahead, so its timers see launches. The time between two CUDA events includes the GPU's idle time
between the two boundaries: a loader's wait counts only as far as the GPU ran dry because of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler.agent import ring
from profiler.agent.ring import Event
from profiler.schema import Step

_PHASE_ENDED_BY = {
    ring.MARK_FETCH_END: "data",
    ring.MARK_FORWARD_END: "forward",
    ring.MARK_BACKWARD_END: "backward",
    ring.MARK_OPTIMIZER_END: "optimizer",
}

_PHASES = ("data_wait", "loader_overhead", "forward", "backward", "optimizer", "other")
_NOTHING: dict[str, Any] = dict.fromkeys((*_PHASES, "gc"))

# Marks come as the GPU reaches them. A step still without them after so many more is left with its host times.
MOST_WAITING = 256


class GpuTimes:
    """Holds steps back until their marks are there."""

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._waiting: list[Step] = []
        self._marks: list[Event] = []
        self._in_use = False
        self._shares: dict[str, float] | None = None
        """Of the last step that was measured: phase to share of its duration."""

    def join(self, steps: list[Step], marks: list[Event], *, final: bool = False) -> list[Step]:
        """The steps that are complete, in order; without any mark ever, all of them at once."""
        self._marks.extend(marks)
        self._in_use = self._in_use or bool(marks)
        if not self._in_use:
            return steps
        self._waiting.extend(steps)
        done: list[Step] = []
        while self._waiting:
            step = self._waiting[0]
            end = self._end(step)
            seen = bool(self._marks) and self._marks[-1].start > end
            if not (seen or final or len(self._waiting) > MOST_WAITING):
                break
            mine = [mark for mark in self._marks if mark.start <= end]
            self._marks = self._marks[len(mine) :]
            done.append(self._timed(self._waiting.pop(0), mine))
        return done

    def _timed(self, step: Step, marks: list[Event]) -> Step:
        """The step with GPU phases: its own, or, of short steps of which only some are measured, the last one's shares.

        What is neither has no phases: the host's would be times of launching, not of working.
        """
        if None in (step.forward, step.backward):
            return step
        measured = _measured(step, marks)
        if measured is not None:
            if measured.duration > 0:
                sums = {name: getattr(measured, name) for name in _PHASES}
                self._shares = {name: s / measured.duration for name, s in sums.items() if s is not None}
            return measured
        if step.tags or self._shares is None:
            return replace(step, **_NOTHING)
        estimated = {name: share * step.duration for name, share in self._shares.items()}
        return replace(step, **{**_NOTHING, **estimated})

    def _end(self, step: Step) -> int:
        between = (step.evaluation or 0.0) + (step.checkpoint_save or 0.0) + (step.epoch_start or 0.0)
        return self._origin + round((step.start + step.duration + between) * 1e9)


def _measured(step: Step, marks: list[Event]) -> Step | None:
    """With GPU phases, if the marks cover the step without a gap and nothing was carved out of it."""
    if step.tags or not marks or marks[-1].id != ring.MARK_OPTIMIZER_END or any(mark.a < 0 for mark in marks):
        return None
    sums = {"data": 0.0, "forward": 0.0, "backward": 0.0, "optimizer": 0.0, "other": 0.0}
    for mark in marks:
        sums[_PHASE_ENDED_BY.get(mark.id, "other")] += mark.a / 1e9
    wait, overhead = step.data_wait or 0.0, step.loader_overhead or 0.0
    share = wait / (wait + overhead) if wait + overhead > 0 else 0.0
    fetches = step.data_wait is not None
    return replace(
        step,
        duration=sum(sums.values()),
        data_wait=sums["data"] * share if fetches else None,
        loader_overhead=sums["data"] * (1 - share) if fetches else None,
        forward=sums["forward"],
        backward=sums["backward"],
        optimizer=sums["optimizer"],
        other=sums["other"] + (0.0 if fetches else sums["data"]),
        gc=None,
    )
