"""The clocks of several recordings, laid over one another where they are shown together.

Ranks that reduce gradients end each update within a moment of one another, wherever they run: whatever else their
clocks say of that moment is the clocks. The recordings themselves are never changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from profiler.schema import Step

FEWEST = 5
"""Steps that two recordings must share before their clocks can be compared."""

MOST = 400
"""Steps that are compared: a median does not get better by more of them."""

FEWEST_FOR_DRIFT = 20

DRIFTS = 0.5
"""A line must halve what the steps scatter by about a constant offset (assumption)."""

LEAST_SECONDS = 10.0
"""Clocks drift by some millionths: over less time than this, by less than steps scatter."""

TOO_FAR = 0.5
"""Of a median step: ranks that scatter more than that do not train in lockstep (assumption)."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a recording's clock is ahead of the reference's: `offset` seconds at 0, `drift` more each second."""

    offset: float = 0.0
    drift: float = 0.0
    residual: float | None = None
    """Median distance, s, that the steps keep from that; None where it is not from steps but from the hosts' clocks."""
    steps: int = 0

    def __call__(self, time: float) -> float:
        """A time of this recording, on the reference's clock."""
        return time - self.offset - self.drift * time


OWN = Clock()
"""The reference's."""


class Reference:
    """The recording by whose clock those of the others are told: by one rank's steps of each."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._updates = _updates(steps)
        self._typical = median(step.duration for step in steps) if steps else 0.0

    def clock_of(self, steps: Sequence[Step], hosts: float) -> Clock:
        """The clock that timed these steps; `hosts` is what the hosts' own clocks say it is ahead by."""
        ours, theirs = self._updates, _updates(steps)
        shared = sorted(ours.keys() & theirs.keys())
        if len(shared) < FEWEST:
            return Clock(hosts)
        shared = shared[:: max(1, len(shared) // MOST)]
        points = [(theirs[key], theirs[key] - ours[key]) for key in shared]
        offset = median(ahead for _, ahead in points)
        clock = Clock(offset, 0.0, _residual(points, offset, 0.0), len(points))
        if len(points) >= FEWEST_FOR_DRIFT and points[-1][0] - points[0][0] >= LEAST_SECONDS:
            drift = _slope(points)
            start = median(ahead - drift * time for time, ahead in points)
            residual = _residual(points, start, drift)
            if residual < DRIFTS * (clock.residual or 0.0):
                clock = Clock(start, drift, residual, len(points))
        return clock if (clock.residual or 0.0) <= TOO_FAR * self._typical else Clock(hosts)


def _updates(steps: Sequence[Step]) -> Mapping[tuple[int, int], float]:
    """When the gradients of the step before each row had been reduced: its end, less its update."""
    found = {}
    for before, step in pairwise(steps):
        if before.index + before.count == step.index:
            found[step.index, step.count] = step.start - (before.optimizer or 0.0)
    return found


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil-Sen over pairs half of the run apart: no few odd steps bend it."""
    half = len(points) // 2
    slopes = [
        (ahead - before) / (time - earlier)
        for (earlier, before), (time, ahead) in zip(points, points[half:], strict=False)
        if time > earlier
    ]
    return median(slopes) if slopes else 0.0


def _residual(points: Sequence[tuple[float, float]], offset: float, drift: float) -> float:
    return median(abs(ahead - offset - drift * time) for time, ahead in points)
