"""Replace host times by exposed GPU times: join steps with the CUDA events of their process.

On a GPU the host runs ahead, so its timers measure launches. The time between two CUDA events includes the GPU's idle
time between the two boundaries: a wait for data counts only to the extent that it left the GPU idle.
"""

from dataclasses import replace
from typing import Any

from profiler.agent import ring
from profiler.agent.ring import Event
from profiler.schema import TAG_UNREACHED, Step

_PHASE_ENDED_BY = {
    ring.MARK_FETCH_END: "data_wait",
    ring.MARK_FORWARD_END: "forward",
    ring.MARK_BACKWARD_END: "backward",
    ring.MARK_OPTIMIZER_END: "optimizer",
}

_BOUNDARIES = (ring.MARK_OPTIMIZER_END, ring.MARK_STEP)
_PHASES = ("data_wait", "loader_overhead", "forward", "backward", "optimizer", "other")
_NOTHING: dict[str, Any] = dict.fromkeys((*_PHASES, "gc"))

# Maximum steps that wait for their marks, which arrive as the GPU reaches them. Beyond that, a step keeps its host
# duration.
MOST_WAITING = 256


class GpuTimes:
    """A join of steps and marks that holds steps back until their marks have arrived."""

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._waiting: list[tuple[Step, int]] = []
        """Steps and their ends, ns."""
        self._device: int | None = None
        """The device of the mark that ended the last step; None if none did."""
        self._marks: list[Event] = []
        self._in_use = self._all_reached = False
        self._shares: dict[str, float] = {}
        """Fraction of the last measured step's duration, by phase."""
        self._like: tuple[Any, ...] | None = None
        """The host's view of that step: its micro-steps, and which phases it lacks."""

    def join(self, steps: list[Step], marks: list[Event], *, final: bool = False) -> list[Step]:
        """Return the completed steps in order; as long as there has been no mark, all of them at once."""
        self._marks.extend(marks)
        self._in_use = self._in_use or bool(marks)
        self._all_reached = self._all_reached or any(mark.id == ring.MARK_ALL_REACHED for mark in marks)
        if not self._in_use:
            return steps
        self._waiting.extend((step, self._end(step)) for step in steps)
        completed: list[Step] = []
        while self._waiting:
            end = self._waiting[0][1]
            is_reached = bool(self._marks) and self._marks[-1].start > end
            pause_end, paused = self._pause()
            last = self._waiting[paused - 1][1] if paused else end
            is_whole = bool(self._marks) and self._marks[-1].start > last >= pause_end
            if not (is_whole or final or len(self._waiting) > MOST_WAITING):
                break
            if paused and last >= pause_end:
                self._stretch(paused, pause_end, last)
            step, _ = self._waiting.pop(0)
            begin = self._origin + round(step.start * 1e9)
            step_marks = [mark for mark in self._marks if mark.start <= end]
            self._marks = self._marks[len(step_marks) :]
            # Earlier marks belong to a step that did not wait for them.
            step_marks = [mark for mark in step_marks if mark.start >= begin]
            boundaries = [mark for mark in step_marks if mark.id in _BOUNDARIES]
            self._device = boundaries[-1].b if boundaries else None
            if final and not (is_reached or boundaries or self._all_reached):
                step = replace(step, tags=step.tags | TAG_UNREACHED)
            completed.append(self._timed(step, step_marks))
        return completed

    def _pause(self) -> tuple[int, int]:
        """Return the time (ns) of the first mark after a pause that begins now, and the number of steps before it.

        Both are 0 if no pause begins now.
        """
        boundary = next((mark for mark in self._marks if mark.id in _BOUNDARIES), None)
        if boundary is None or boundary.c <= 0 or boundary.b != self._device:
            return 0, 0
        return boundary.start, sum(self._origin + step.start * 1e9 < boundary.start for step, _ in self._waiting)

    def _stretch(self, paused: int, after: int, last: int) -> None:
        """Distribute the GPU time of the next `paused` steps among them, in proportion to their host times.

        The last of them may have marks later than the one at `after`, for example if several optimizers end it.
        """
        pause_marks = [mark for mark in self._marks if after <= mark.start <= last and mark.b == self._device]
        last_boundary = max(mark.start for mark in pause_marks if mark.id in _BOUNDARIES)
        times = [mark.a if mark.a >= 0 else mark.c or -1 for mark in pause_marks if mark.start <= last_boundary]
        host_time = sum(step.duration for step, _ in self._waiting[:paused])
        if host_time > 0 and min(times) >= 0 and not any(step.tags for step, _ in self._waiting[:paused]):
            scale = sum(times) / 1e9 / host_time
            self._waiting[:paused] = [
                (replace(step, duration=step.duration * scale), end) for step, end in self._waiting[:paused]
            ]

    def _timed(self, step: Step, marks: list[Event]) -> Step:
        """Return the step with GPU phases.

        If only some of many short steps are measured, the others get the fractions of the last measured one if the
        host saw the same phases in both. Otherwise a step has no phases, because the host's would be launch times.
        """
        measured_step = _measured(step, marks)
        signature = (step.micro_steps, *(getattr(step, name) is None for name in _PHASES))
        if measured_step is not None:
            if measured_step.duration > 0:
                sums = {name: getattr(measured_step, name) for name in _PHASES}
                self._shares = {
                    name: seconds / measured_step.duration for name, seconds in sums.items() if seconds is not None
                }
                self._like = signature
            return measured_step
        if step.tags or signature != self._like:
            return replace(step, **_NOTHING)
        phases = {name: share * step.duration for name, share in self._shares.items()}
        return replace(step, **{**_NOTHING, **phases})

    def _end(self, step: Step) -> int:
        between_steps = (step.evaluation or 0.0) + (step.checkpoint_save or 0.0) + (step.epoch_start or 0.0)
        return self._origin + round((step.start + step.duration + between_steps) * 1e9)


def _measured(step: Step, marks: list[Event]) -> Step | None:
    """Return the step with GPU phases, or None.

    None if no GPU's marks cover the step without a gap, or the step has tags. With several GPUs, each of which
    partitions the whole step, the one that computes most counts.
    """
    if step.tags:
        return None
    chains: dict[int, list[Event]] = {}
    for mark in marks:
        chains.setdefault(mark.b, []).append(mark)
    complete_chains = [
        chain for chain in chains.values() if chain[-1].id in _BOUNDARIES and all(mark.a >= 0 for mark in chain)
    ]
    gpu_steps = [_lived(step, chain) for chain in complete_chains]
    return min(gpu_steps, key=lambda gpu_step: gpu_step.other or 0.0, default=None)


def _lived(step: Step, marks: list[Event]) -> Step:
    """Return the step as one GPU saw it; phases without host events become part of `other`.

    If phases cannot be measured, only the duration is the GPU's.
    """
    if step.other is None:
        return replace(step, **_NOTHING, duration=sum(mark.a for mark in marks) / 1e9)
    sums = {name: 0.0 for name in (*_PHASE_ENDED_BY.values(), "other") if getattr(step, name) is not None}
    for mark in marks:
        phase = _PHASE_ENDED_BY.get(mark.id, "other")
        sums[phase if phase in sums else "other"] += mark.a / 1e9
    phases = {**_NOTHING, **sums}
    if "data_wait" in sums:
        wait, overhead = step.data_wait or 0.0, step.loader_overhead or 0.0
        share = wait / (wait + overhead) if wait + overhead > 0 else 0.0
        phases |= {"data_wait": sums["data_wait"] * share, "loader_overhead": sums["data_wait"] * (1 - share)}
    return replace(step, **phases, duration=sum(sums.values()))
