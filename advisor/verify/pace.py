"""Measure the pace of a program's steps, and choose how many of them a trial takes."""

import math
from dataclasses import dataclass

from advisor.judging.judge import Finding
from advisor.metrics.base import Metrics, Missing
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import step_time_cv, step_time_mean, time_between
from advisor.models.effects import Triple
from advisor.models.state import Scenario, State, removed
from advisor.stats.significance import steps_per_arm
from advisor.verify.arm import WARM_UP
from advisor.verify.judgment import SPIKY
from advisor.verify.longer import LEAST_EFFECT
from profiler.errors import ProfilerError
from profiler.schema import TAG_FIRST

# Least and largest number of steps measured in each process.
LEAST_STEPS, MOST_STEPS = 40, 400

# Number of occasional events (epoch start, evaluation, checkpoint) that each process must reach.
TIMES = 2

# Seconds that a trial process takes in addition to the program: the sandbox, our start, and writing the store's last
# pages. Measured on two shared cores: 0.8 to 1.3 s.
AROUND = 1.0


# Factor on the duration of trials that a recording suggests: 2 to 3 were measured on two shared cores. Each process
# starts cold, and the sandbox lies between it and its files.
LONGER = 2.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The recorded pace of the program's steps."""

    step_time: float
    """Mean seconds per step, including the time between steps."""
    cv: float
    """Spread of the step time, divided by its mean."""
    period: int = 1
    """Steps from one evaluation, checkpoint or epoch start to the next; 1 if these cost next to nothing."""
    last: int | None = None
    """Number of steps after which the program ends by itself; None if not known."""

    start_up: float = 0.0
    """Seconds from the command to its first step."""

    def duration(self, processes: int, steps: int, change: Triple | None = None) -> float:
        """Return the approximate seconds of a trial.

        Each arm has `processes` processes of `steps` steps; `change` is the share of the step time that the change
        removes.
        """
        expected = change[1] if change else 0.0
        return LONGER * processes * (2 * (AROUND + self.start_up) + (2 - expected) * steps * self.step_time)


def pace_of(m: Metrics) -> Pace:
    """Return the pace of a recorded run.

    Raises:
        ProfilerError: no steps were measured.
    """
    try:
        mean, cv = m[step_time_mean], m[step_time_cv]
    except Missing as missing:
        raise ProfilerError(f"{missing.what}, so there is nothing to compare.", missing.remedy) from None
    steps = m[primary_rank].steps
    number = sum(step.count for step in steps)
    events = [step for step in steps if time_between(step) and not step.tags & TAG_FIRST]
    between_steps = sum(step.count * time_between(step) for step in events) / number
    rare = between_steps > SPIKY * mean
    ended = m[primary_rank].trial is None and m.profile.runs[0].outcome == "completed"
    return Pace(
        mean + between_steps,
        cv,
        period=round(number / len(events)) if rare else 1,
        last=number if ended else None,
        start_up=min(step.start for step in steps),
    )


def steps_needed(pace: Pace, finding: Finding, processes: int) -> int:
    """Return the steps per process that find the low end of the prediction 8 times in 10."""
    effect = max(LEAST_EFFECT, finding.alone.low if finding.alone else 0.0)
    measured_steps = max(LEAST_STEPS, math.ceil(steps_per_arm(pace.cv, effect) / processes), TIMES * pace.period)
    total_steps = WARM_UP + (measured_steps if _is_between_steps(finding) else min(measured_steps, MOST_STEPS))
    return total_steps if pace.last is None else min(total_steps, pace.last)


def _is_between_steps(finding: Finding) -> bool:
    """Return whether the gain lies between steps alone: a trial without an epoch start would not show it."""
    effect, state = finding.advice.effect, State(phases={"forward": 1.0})
    return effect is not None and removed(state, effect(state, Scenario.EXPECTED)) == 0.0
