"""How good predictions have been, and what their intervals should be for the next one.

Quantities are removed shares of the step time, r = 1 - T1/T0, predicted as (low, expected, high): the 10th, 50th and
90th percentile. Nothing is rescaled to fit a hope: the record decides.

Until a rule has ten records its intervals are a quarter wider than its model gives them, and no narrower than what the
rest of a step changes by when much of it goes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from advisor.models.effects import Triple
from advisor.units import share
from advisor.verify.verdict import Verdict

# Between the 10th and the 90th percentile.
TARGET = 0.8

# With fewer records a share of 80 % is no more than a guess ...
LEAST_RECORDS = 10

# ... and the interval is widened by this instead (assumption: predictions are surer of themselves than they should be).
UNTESTED = 1.25

# An interval's side counts as no narrower than this: a point of the step time is what a trial can tell apart.
LEAST_SIDE = 0.01

# By how much what remains of a step is not what it was, once all the rest is gone: a loop that no longer sleeps between
# its batches has its caches warm and its clock up. Measured once where a wait of 90 % went: the other phases took 17 %
# less. Of eleven rows of the truth table that lose a wait or a log, what remained was off by 4 to 17 % of itself times
# the removed share in nine, by 28 % in one, and in one of a small gain by more. With the quarter added this is 19 %.
REST = 0.15

# A rule's confidence counts as so many trials: Beta(hits + 2, misses + 1) for a confidence of two thirds.
PRIOR_TRIALS = 3

# The gain was as much as predicted; it was not. What told nothing, and what could not be made, is neither.
HITS = (Verdict.CONFIRMED, Verdict.BETTER)
MISSES = (Verdict.PARTIAL, Verdict.REFUTED, Verdict.HARMFUL)


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


def untested(predicted: Triple) -> Triple:
    """The prediction of a model that few trials have shown to be right: both sides a quarter wider.

    A side counts as no narrower than 15 % of what remains of the step, in proportion to what goes: of a step of which
    87 % goes, 13 % x 0.15 x 0.87. An end that a model puts at nothing or beyond stays there: that a change cannot cost
    time is no estimate.
    """
    low, expected, high = predicted
    least = REST * max(0.0, expected) * (1 - expected)
    below, above = (UNTESTED * max(side, least) for side in (expected - low, high - expected))
    lowest, highest = expected - below, min(1.0, expected + above)
    return (max(0.0, lowest) if low >= 0 else lowest, expected, min(0.0, highest) if high <= 0 else highest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of a rule's advice on one run."""

    rule: str
    verdict: Verdict
    predicted: Triple | None = None
    """As its model gave it, before anything was rescaled."""
    removed: Triple | None = None
    """As measured, with the 95 % interval."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that has been tried so far."""

    tried: tuple[Tried, ...] = ()

    def of(self, rule: str) -> list[Tried]:
        """The trials of a rule's advice, oldest first."""
        return [each for each in self.tried if each.rule == rule]

    def records(self, rule: str) -> list[Record]:
        """Its predictions of which a trial could tell what became of them: where noise hid that, the machine would be
        held against the model."""
        return [
            Record(rule, each.predicted, each.removed[1])
            for each in self.of(rule)
            if each.predicted and each.removed and each.verdict in (*HITS, *MISSES)
        ]

    def scale(self, rule: str) -> float:
        """What to multiply the sides of its intervals by."""
        return scale(self.records(rule))

    def prediction(self, rule: str, modelled: Triple) -> Triple:
        """The model's, as wide as the past has shown that it should be."""
        if len(self.records(rule)) < LEAST_RECORDS:
            return untested(modelled)
        return rescaled(modelled, self.scale(rule))

    def confidence(self, rule: str, prior: float) -> float:
        """Mean of the Beta distribution that the trials make of the confidence in the model."""
        verdicts = [each.verdict for each in self.of(rule)]
        hits, misses = (sum(verdict in which for verdict in verdicts) for which in (HITS, MISSES))
        return (PRIOR_TRIALS * prior + hits) / (PRIOR_TRIALS + hits + misses)

    def story(self, rule: str) -> str:
        """As "Tried 3 times so far: 2 confirmed, 1 refuted. Predicted 40% less step time, measured 38% less
        (medians).", or nothing."""
        tried = self.of(rule)
        if not tried:
            return ""
        counted = Counter(each.verdict for each in tried)
        verdicts = ", ".join(f"{counted[verdict]} {verdict.value}" for verdict in Verdict if counted[verdict])
        parts = [f"Tried {len(tried)} times so far: {verdicts}."]
        if len(tried) == 1:
            parts = [f"Tried once so far: {tried[0].verdict.value}."]
        if records := self.records(rule):
            expected = median(each.predicted[1] for each in records)
            observed = median(each.observed for each in records)
            medians = " (medians)" if len(records) > 1 else ""
            parts.append(f"Predicted {_change(expected)} step time, measured {_change(observed)}{medians}.")
            since = "So" if len(records) >= LEAST_RECORDS else f"Until {LEAST_RECORDS} trials have told,"
            least = "at least " if len(records) < LEAST_RECORDS else ""
            parts.append(f"{since} its intervals are {least}{self.scale(rule):.3g} times as wide as its model's.")
        return " ".join(parts)


def _change(removed: float) -> str:
    return f"{share(abs(removed))} {'less' if removed >= 0 else 'more'}"


def _some(records: Sequence[Record]) -> Sequence[Record]:
    if not records:
        raise ValueError("no prediction has been tried yet")
    return records
