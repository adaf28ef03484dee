"""Turn steps into stretches of time, with their phases inside them."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from advisor.metrics.step import length
from advisor.runs.clocks import Clock
from profiler import schema
from profiler.schema import BETWEEN, PHASES, Step

TAGS = {
    schema.TAG_EPOCH_START: "epoch start",
    schema.TAG_EVALUATION: "evaluation",
    schema.TAG_CHECKPOINT: "checkpoint",
    schema.TAG_WINDOW: "torch.profiler window",
    schema.TAG_COMPILE: "compilation",
    schema.TAG_FIRST: "first step",
    schema.TAG_UNREACHED: "not reached by the GPU",
}

IN_ORDER = (*BETWEEN, *PHASES)
"""The order of phases within a stretch.

A recording has the length of each phase but not its place. Phases are therefore laid end to end: first what falls
between two updates, then the phases in the order of a loop.
"""


@dataclass(frozen=True, slots=True)
class ExportedStep:
    """A step or, in a long run, the neighboring steps that one row stands for. Times are whole nanoseconds."""

    step: Step
    start: int
    end: int
    phases: tuple[tuple[str, int, int], ...]
    """Name, start and end of each phase that took any time."""

    @property
    def name(self) -> str:
        """Return the name for readers."""
        return f"step {self.step.index}" if self.step.count == 1 else f"{self.step.count} steps from {self.step.index}"

    @property
    def tags(self) -> list[str]:
        """Return why the step is not steady."""
        return [name for tag, name in TAGS.items() if self.step.tags & tag]


def stretches(steps: Iterable[Step], clock: Clock) -> Iterator[ExportedStep]:
    """Yield a stretch per step on the reference clock. Steps with an impossible or unknown length are left out."""
    for step in steps:
        lengths = {name: step.count * (getattr(step, name) or 0.0) for name in IN_ORDER}
        step_length = length(step)
        if not (
            math.isfinite(step_length)
            and step_length >= 0
            and all(0 <= phase_length < math.inf for phase_length in lengths.values())
        ):
            continue
        start = phase_start = nanoseconds(clock(step.start))
        end = nanoseconds(clock(step.start + step_length))
        phases = []
        boundary = step.start
        for name, seconds in lengths.items():
            boundary += seconds
            phase_end = min(nanoseconds(clock(boundary)), end)
            if phase_end > phase_start:
                phases.append((name, phase_start, phase_end))
            phase_start = phase_end
        yield ExportedStep(step, start, end, tuple(phases))


def nanoseconds(seconds: float) -> int:
    """Return the nearest whole nanosecond."""
    return round(seconds * 1e9)
