"""How good predictions have been, and what their intervals should be for the next one.

Quantities are removed shares of the step time, r = 1 - T1/T0, predicted as (low, expected, high): the 10th, 50th and
90th percentile. Nothing is rescaled to fit a hope: the record decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from advisor.models.effects import Triple

# Between the 10th and the 90th percentile.
TARGET = 0.8

# With fewer records a share of 80 % is no more than a guess ...
LEAST_RECORDS = 10

# ... and the interval is widened by this instead (assumption: predictions are surer of themselves than they should be).
UNTESTED = 1.25

# An interval's side counts as no narrower than this: a point of the step time is what a trial can tell apart.
LEAST_SIDE = 0.01


@dataclass(frozen=True, slots=True)
class Record:
    """One prediction, and what became of it."""

    rule: str
    predicted: Triple
    observed: float

    def __post_init__(self) -> None:
        low, expected, high = self.predicted
        if not low <= expected <= high or not math.isfinite(self.observed):
            raise ValueError(f"not a prediction and its outcome: {self}")

    @property
    def inside(self) -> bool:
        """The interval held what came."""
        return self.predicted[0] <= self.observed <= self.predicted[2]

    @property
    def error(self) -> float:
        """|expected - observed|, in shares of the step time."""
        return abs(self.predicted[1] - self.observed)

    @property
    def relative_error(self) -> float:
        """The same over what was observed; `math.inf` if that was nothing."""
        if self.error == 0:
            return 0.0
        return self.error / abs(self.observed) if self.observed else math.inf

    @property
    def needed(self) -> float:
        """What its sides have to be multiplied by for the interval to just hold what came."""
        low, expected, high = self.predicted
        side = high - expected if self.observed > expected else expected - low
        return self.error / max(side, LEAST_SIDE)


def coverage(records: Sequence[Record]) -> float:
    """Share of the intervals that held what came; the aim is 80 %."""
    return sum(record.inside for record in _some(records)) / len(records)


def median_error(records: Sequence[Record]) -> float:
    """Median |expected - observed|, in shares of the step time."""
    return median(record.error for record in _some(records))


def median_relative_error(records: Sequence[Record]) -> float:
    """Median |expected - observed| / |observed|."""
    return median(record.relative_error for record in _some(records))


def scale(records: Sequence[Record]) -> float:
    """What to multiply the sides of a rule's intervals by: the least that would have held 80 % of what came.

    1.25 while there are fewer than ten records.
    """
    if len(records) < LEAST_RECORDS:
        return UNTESTED
    needed = sorted(record.needed for record in records)
    return needed[math.ceil(TARGET * len(needed) - 1e-9) - 1]


def rescaled(predicted: Triple, factor: float) -> Triple:
    """The prediction with both sides of its interval times `factor`; no step loses more than all of its time."""
    low, expected, high = predicted
    if factor < 0 or not low <= expected <= high:
        raise ValueError(f"cannot rescale {predicted} by {factor}")
    sides = (expected - low, high - expected)
    below, above = (max(LEAST_SIDE, factor * max(side, LEAST_SIDE)) for side in sides)
    return (expected - below, expected, max(expected, min(1.0, expected + above)))


def _some(records: Sequence[Record]) -> Sequence[Record]:
    if not records:
        raise ValueError("no prediction has been tried yet")
    return records
