"""Align the clocks of several recordings where they are shown together.

Ranks that reduce gradients end each update within a moment of one another, wherever they run. Any other difference
between their clocks at that moment is a clock offset. The recordings themselves never change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from profiler.schema import Step

FEWEST = 5
"""Fewest steps that two recordings must share to compare their clocks."""

MOST = 400
"""Most steps that are compared; more would not improve the median."""

FEWEST_FOR_DRIFT = 20

DRIFTS = 0.5
"""A drift is kept only if it at least halves the scatter around a constant offset (assumption)."""

LEAST_SECONDS = 10.0
"""Minimum seconds to measure a drift. Clocks drift by a few ppm: over less time, by less than steps scatter."""

TOO_FAR = 0.5
"""Largest scatter, as a share of the median step. Ranks beyond it do not train in lockstep (assumption)."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a recording's clock is ahead of the reference's.

    That is `offset` seconds at 0, and `drift` seconds more per second.
    """

    offset: float = 0.0
    drift: float = 0.0
    residual: float | None = None
    """Median distance of the steps from that line, in seconds; None if the hosts' clocks were used instead of steps."""

    def __call__(self, time: float) -> float:
        """Return a time of this recording on the reference's clock."""
        return time - self.offset - self.drift * time


OWN = Clock()
"""The reference's own clock."""


class Reference:
    """The recording whose clock the others are compared with, by the steps of one rank of each."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._updates = _updates(steps)
        self._typical = median(step.duration for step in steps) if steps else 0.0

    def clock_of(self, steps: Sequence[Step], hosts: float) -> Clock:
        """Return the clock that timed these steps.

        `hosts` is the number of seconds that it is ahead according to the hosts' own clocks. It is used if too few
        steps are shared, or if they scatter too much.
        """
        own_updates, other_updates = self._updates, _updates(steps)
        keys = sorted(own_updates.keys() & other_updates.keys())
        if len(keys) < FEWEST:
            return Clock(hosts)
        keys = keys[:: max(1, len(keys) // MOST)]
        points = [(other_updates[key], other_updates[key] - own_updates[key]) for key in keys]
        offset = median(ahead for _, ahead in points)
        clock = Clock(offset, 0.0, _residual(points, offset, 0.0))
        if len(points) >= FEWEST_FOR_DRIFT and points[-1][0] - points[0][0] >= LEAST_SECONDS:
            drift = _slope(points)
            start = median(ahead - drift * time for time, ahead in points)
            residual = _residual(points, start, drift)
            if residual < DRIFTS * (clock.residual or 0.0):
                clock = Clock(start, drift, residual)
        return clock if (clock.residual or 0.0) <= TOO_FAR * self._typical else Clock(hosts)


def _updates(steps: Sequence[Step]) -> Mapping[tuple[int, int], float]:
    """Return when the gradients of the step before each row had been reduced: its end minus its update."""
    updates = {}
    for previous, step in pairwise(steps):
        if previous.index + previous.count == step.index:
            updates[step.index, step.count] = step.start - (previous.optimizer or 0.0)
    return updates


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the drift by Theil-Sen over pairs half a run apart, so that a few odd steps do not bend it."""
    half = len(points) // 2
    slopes = [
        (ahead - before) / (time - earlier)
        for (earlier, before), (time, ahead) in zip(points, points[half:], strict=False)
        if time > earlier
    ]
    return median(slopes) if slopes else 0.0


def _residual(points: Sequence[tuple[float, float]], offset: float, drift: float) -> float:
    return median(abs(ahead - offset - drift * time) for time, ahead in points)
