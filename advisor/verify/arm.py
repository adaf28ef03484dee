"""Read one process of a trial from its recording."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median

from advisor.metrics.base import Metrics
from advisor.metrics.memory import ran_out_of_memory
from advisor.metrics.step import time_between
from advisor.runs.load import load
from advisor.runs.profile import Profile
from advisor.units import count
from profiler.errors import ProfilerError
from profiler.schema import TAG_COMPILE, TAG_EPOCH_START, TAG_FIRST, TAG_UNREACHED, Step

# Errors that launchers print for a failed child, after the child's own output.
_OF_LAUNCHERS = ("ChildFailedError", "CalledProcessError")
_ERROR = re.compile(r"(?:\[rank\d+\]: )?([\w.]+(?:Error|Exception|Interrupt): \S.*)")

# Steps before the measurement: torch's caches fill, and the allocator settles. Models are changed after their third
# step, and compilation follows.
WARM_UP = 15


class TrialFailed(Exception):
    """A trial process that shows nothing about the change; the message gives the reason in a sentence."""

    def __init__(self, why: str, *, by_chance: bool = False) -> None:
        super().__init__(why)
        self.by_chance = by_chance
        """Whether another attempt may succeed: the cause was a signal or a taken port, for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Measurements of one process, with or without the change."""

    times: tuple[float, ...]
    """Seconds of each step, including the time between it and the one before.

    That time is evaluation, checkpointing and epoch starts.
    """
    between: float
    """Share of these seconds that lies between steps."""
    period: int = 1
    """Median number of steps from one event between steps to the next; 1 if there were fewer than two."""
    losses: tuple[float | None, ...]
    """Losses of each backward pass of rank 0 in the first epoch; None if not finite.

    In later epochs, persistent workers draw the order of the samples differently.
    """
    memory: int | None
    """Largest peak of allocated GPU memory of a rank, in bytes; None without a GPU."""


def read(folder: Path, log: Path) -> Arm:
    """Return the measurements of the process recorded in `folder`.

    Raises:
        TrialFailed: the change was not made, the process ran out of memory, or it made too few steps.
    """
    try:
        profile = load(folder)
    except ProfilerError as error:
        reason = f"The program ended before it was recorded: {_last_line(log) or error.message}"
        raise TrialFailed(reason, by_chance=True) from None
    for problem in profile.problems:
        if problem.source == "trial":
            raise TrialFailed(f"The change could not be made. {problem.message}")
    rank = profile.ranks[0] if profile.ranks else None
    steps_taken = rank.trial.steps if rank and rank.trial else 0
    if Metrics(profile)[ran_out_of_memory]:
        when = f"after {count(steps_taken, 'step')}" if steps_taken else "in its first step"
        raise TrialFailed(f"It ran out of memory {when}.")
    # False if the program completed: another attempt would end the same way.
    by_chance = profile.runs[0].outcome != "completed"
    if rank is None or rank.trial is None or not steps_taken:
        raise TrialFailed(f"The program ended before its first step: {_last_line(log)}", by_chance=by_chance)
    steps = [step for step in rank.steps if not step.tags & (TAG_FIRST | TAG_COMPILE | TAG_UNREACHED)]
    measured_steps = steps[_after_warm_up(steps) :]
    if not measured_steps:
        reason = f"The program ended after {count(steps_taken, 'step')}, too few to measure: {_last_line(log)}"
        raise TrialFailed(reason, by_chance=by_chance)
    times = [step.duration + time_between(step) for step in measured_steps for _ in range(step.count)]
    return Arm(
        times=tuple(times),
        between=sum(step.count * time_between(step) for step in measured_steps) / sum(times),
        period=_period(measured_steps),
        losses=rank.trial.losses[: _first_epoch(rank.steps)],
        memory=_peak(profile),
    )


def _after_warm_up(steps: list[Step]) -> int:
    """Return the number of rows that contain the warm-up."""
    steps_before = 0
    for row, step in enumerate(steps):
        if steps_before >= WARM_UP:
            return row
        steps_before += step.count
    return len(steps)


def _first_epoch(steps: Sequence[Step]) -> int | None:
    """Return the number of backward passes in the first epoch; None if no other epoch began."""
    passes = 0.0
    for row, step in enumerate(steps):
        if row and step.tags & TAG_EPOCH_START:
            return round(passes)
        passes += step.micro_steps * step.count
    return None


def _period(steps: Sequence[Step]) -> int:
    starts = [0, *accumulate(step.count for step in steps)]
    events = [start for start, step in zip(starts, steps, strict=False) if time_between(step)]
    return round(median(later - earlier for earlier, later in pairwise(events))) if len(events) > 1 else 1


def _peak(profile: Profile) -> int | None:
    peaks = [fact.allocated_peak for rank in profile.ranks for fact in rank.memory_peaks]
    return max(peaks) if peaks else None


def _last_line(log: Path) -> str:
    """Return the last line of the program's output: most often its error.

    Lines that a launcher adds after it are skipped.
    """
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    lines = text.strip().splitlines()
    if any(name in text for name in _OF_LAUNCHERS):
        own_lines = [line for line in lines if not any(name in line for name in _OF_LAUNCHERS)]
        lines = [match[1] for line in own_lines if (match := _ERROR.match(line))] or lines
    return lines[-1][:300] if lines else ""
