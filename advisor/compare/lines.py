"""Compare where in the program's code two runs spend a step: which functions grew, and their hottest lines.

A sample counts for the innermost function of the program's own code, including the library code that it calls.
Functions are matched by file name, name and phase, because edits change line numbers.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import PurePath

from advisor.compare.change import ChangeVerdict, difference, verdict
from advisor.metrics.base import Metrics
from advisor.metrics.lines import interval, sampled, stack_samples
from advisor.metrics.step import step_time_mean
from advisor.stats.significance import Interval

LEAST = 0.01
"""Share of the first run's step that a function must take in either run to get a row."""

MOST = 12

FEW = 30
"""Number of samples of a run below which a difference is shown but not judged: intervals are then rough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSide:
    """A function in one run, per step."""

    file: str
    line: int
    """Its hottest line."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionChange:
    """A function of the program's own code in both runs; None: not sampled in that run."""

    function: str
    phase: str
    before: FunctionSide | None
    after: FunctionSide | None
    change: Interval
    """Change as a share of the first run's mean step."""
    verdict: ChangeVerdict


def function_changes(
    before: Metrics, after: Metrics, scale: float, relevant: float, alone: tuple[float, float] = (1.0, 1.0)
) -> tuple[FunctionChange, ...]:
    """Return the functions whose time per step differs, the largest difference first.

    `scale` is the factor on the second run's times; `alone` are the least shares of both runs' times that remain on an
    idle machine. Empty if either run has no stacks or no steady step.
    """
    counts = (before.get(stack_samples), after.get(stack_samples))
    steps = (before.get(step_time_mean), after.get(step_time_mean))
    if not counts[0] or not counts[1] or not steps[0] or not steps[1]:
        return ()
    scaled_steps, fewest_samples = (steps[0], steps[1] * scale), min(counts[0], counts[1])
    sides = (_functions(before), _functions(after))
    rows = []
    for key in dict.fromkeys((*sides[0], *sides[1])):
        line_shares = [side.get(key, {}) for side in sides]
        times = [
            _seconds(sum(shares.values()), count or 0, step, least_share)
            for shares, count, step, least_share in zip(line_shares, counts, scaled_steps, alone, strict=True)
        ]
        if max(duration.estimate for duration in times) < LEAST * scaled_steps[0]:
            continue
        change = difference(times[0], times[1], scaled_steps[0])
        first, second = (_side(shares, time.estimate) for shares, time in zip(line_shares, times, strict=True))
        change_verdict = verdict(change, relevant) if fewest_samples >= FEW else ChangeVerdict.TOO_FEW
        rows.append(
            FunctionChange(
                function=key[1], phase=key[2], before=first, after=second, change=change, verdict=change_verdict
            )
        )
    rows.sort(key=lambda row: -abs(row.change.estimate))
    return tuple(rows[:MOST])


def _seconds(share: float, count: int, step: float, alone: float) -> Interval:
    low, high = interval(share, count)
    return Interval(alone * low * step, share * step, high * step)


def _side(shares: dict[tuple[str, int], float], seconds: float) -> FunctionSide | None:
    if not shares:
        return None
    file, line = max(shares, key=lambda place: shares[place])
    return FunctionSide(file=file, line=line, seconds=seconds)


def _functions(m: Metrics) -> dict[tuple[str, str, str], dict[tuple[str, int], float]]:
    """Return the share of samples in which each line is the program's innermost, by file name, function and phase."""
    rows = m[sampled]
    total = sum(row.total for row in rows)
    lines: dict[tuple[str, str, str], dict[tuple[str, int], float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        own_frame = next((frame for frame in reversed(row.frames) if not frame[3]), None)
        if own_frame is not None:
            lines[PurePath(own_frame[0]).name, own_frame[2], row.phase][own_frame[0], own_frame[1]] += row.total / total
    return lines
