"""Measure how good predictions have been, and set the intervals of the next ones accordingly.

Quantities are removed shares of the step time, r = 1 - T1/T0, predicted as (low, expected, high): the 10th, 50th and
90th percentile. Intervals follow the record of past trials alone.

Until a rule has ten records, its intervals are a quarter wider than its model's, and no narrower than the change
expected in the rest of a step when a large part of it is removed.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from advisor.judging.verdict import Verdict
from advisor.models.effects import Triple
from advisor.units import count, share

# Share of outcomes between the 10th and the 90th percentile.
TARGET = 0.8

# Minimum number of records: with fewer, a share of 80 % is only a guess ...
LEAST_RECORDS = 10

# ... and intervals are widened by this factor instead (assumption: predictions are overconfident).
UNTESTED = 1.25

# Least width of an interval's side: a trial can resolve one percentage point of the step time.
LEAST_SIDE = 0.01

# Relative change of the remaining part of a step, if everything else is removed: a loop that no longer sleeps between
# batches has warm caches and a high clock. Measured once, when a wait of 90 % was removed: the other phases took 17 %
# less. In eleven rows of the truth table that lose a wait or a log, the error of the remaining part, relative to that
# part times the removed share, was 4 to 17 % in nine, 28 % in one, and more in one with a small gain. With the quarter
# added (UNTESTED), REST is 19 %.
REST = 0.15

# Weight of a rule's own confidence, in trials: Beta(hits + 2, misses + 1) for a confidence of two thirds.
PRIOR_TRIALS = 3

# Verdicts that the gain was as large as predicted, and that it was not. INCONCLUSIVE and FAILED are neither.
HITS = (Verdict.CONFIRMED, Verdict.BETTER)
MISSES = (Verdict.PARTIAL, Verdict.REFUTED, Verdict.HARMFUL)


@dataclass(frozen=True, slots=True)
class Record:
    """A prediction and its measured outcome."""

    rule: str
    predicted: Triple
    observed: float

    def __post_init__(self) -> None:
        low, expected, high = self.predicted
        if not low <= expected <= high or not math.isfinite(self.observed):
            raise ValueError(f"not a prediction and its outcome: {self}")

    @property
    def inside(self) -> bool:
        """Return whether the interval contains the outcome."""
        return self.predicted[0] <= self.observed <= self.predicted[2]

    @property
    def error(self) -> float:
        """Return |expected - observed|, in shares of the step time."""
        return abs(self.predicted[1] - self.observed)

    @property
    def needed(self) -> float:
        """Return the least factor on the interval's sides with which the interval contains the outcome."""
        low, expected, high = self.predicted
        side = high - expected if self.observed > expected else expected - low
        return self.error / max(side, LEAST_SIDE)


def scale(records: Sequence[Record]) -> float:
    """Return the factor for the sides of a rule's intervals: the least that would have contained 80 % of outcomes.

    1.25 while there are fewer than ten records.
    """
    if len(records) < LEAST_RECORDS:
        return UNTESTED
    factors = sorted(record.needed for record in records)
    return factors[math.ceil(TARGET * len(factors) - 1e-9) - 1]


def rescaled(predicted: Triple, factor: float) -> Triple:
    """Return the prediction with both sides of its interval multiplied by `factor`.

    A step cannot lose more than all of its time.
    """
    low, expected, high = predicted
    if factor < 0 or not low <= expected <= high:
        raise ValueError(f"cannot rescale {predicted} by {factor}")
    sides = (expected - low, high - expected)
    low_side, high_side = (max(LEAST_SIDE, factor * max(side, LEAST_SIDE)) for side in sides)
    return (expected - low_side, expected, max(expected, min(1.0, expected + high_side)))


def untested(predicted: Triple) -> Triple:
    """Return the prediction of a model with few trials: both sides of its interval a quarter wider.

    Before that, a side counts as at least 15 % of the remaining part of the step, times the removed share: if 87 % of a
    step is removed, 13 % x 0.15 x 0.87. An interval that the model keeps on one side of zero stays on that side: that a
    change cannot cost time is not an estimate.
    """
    low, expected, high = predicted
    least_side = REST * max(0.0, expected) * (1 - expected)
    low_side, high_side = (UNTESTED * max(side, least_side) for side in (expected - low, high - expected))
    lowest, highest = expected - low_side, min(1.0, expected + high_side)
    return (max(0.0, lowest) if low >= 0 else lowest, expected, min(0.0, highest) if high <= 0 else highest)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """The outcome of a rule's advice on one run."""

    rule: str
    verdict: Verdict
    predicted: Triple | None
    """Predicted share of the step time that is removed; negative if the step takes longer."""
    removed: Triple | None = None
    """The measured share with its 95 % interval; None if nothing could be measured."""

    def __post_init__(self) -> None:
        for triple in (self.predicted, self.removed):
            if triple is not None and not (list(triple) == sorted(triple) and triple[-1] <= 1):
                raise ValueError(f"the trial of {self.rule!r} contains impossible values")


@dataclass(frozen=True, slots=True)
class Calibration:
    """The trials so far, of all programs on this machine."""

    tried: tuple[TrialResult, ...] = ()
    """The last trial of each rule on each program, with the model's own prediction, before any rescaling."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Number of all trials by rule, including repeated ones."""

    def of(self, rule: str) -> list[TrialResult]:
        """Return the trials of a rule's advice, oldest first."""
        return [trial for trial in self.tried if trial.rule == rule]

    def records(self, rule: str) -> list[Record]:
        """Return the rule's predictions whose outcome a trial could determine.

        Inconclusive trials are left out: they would blame the model for the machine's noise.
        """
        return [
            Record(rule, trial.predicted, trial.removed[1])
            for trial in self.of(rule)
            if trial.predicted and trial.removed and trial.verdict in (*HITS, *MISSES)
        ]

    def prediction(self, rule: str, modeled: Triple) -> Triple:
        """Return the model's prediction, widened or narrowed to match past trials."""
        records = self.records(rule)
        return untested(modeled) if len(records) < LEAST_RECORDS else rescaled(modeled, scale(records))

    def confidence(self, rule: str, prior: float) -> float:
        """Return the confidence in the model: the mean of its Beta distribution after the trials."""
        verdicts = [trial.verdict for trial in self.of(rule)]
        hits, misses = (sum(verdict in group for verdict in verdicts) for group in (HITS, MISSES))
        return (PRIOR_TRIALS * prior + hits) / (PRIOR_TRIALS + hits + misses)

    def story(self, rule: str) -> str:
        """Return the rule's record over all programs in sentences; empty if it was never tried.

        It gives the number of trials, how the last one on each program ended, and the medians of predictions and
        measurements.
        """
        trials = self.of(rule)
        if not trials:
            return ""
        counts = Counter(trial.verdict for trial in trials)
        verdicts = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
        number = self.numbers.get(rule, len(trials))
        repetitions = f", {number} times" if number > len(trials) else ""
        sentences = [f"Tried before{repetitions} on {count(len(trials), 'program')}: {verdicts}."]
        if records := self.records(rule):
            expected = median(trial.predicted[1] for trial in records)
            observed = median(trial.observed for trial in records)
            note = " (medians)" if len(records) > 1 else ""
            sentences.append(f"Predicted {_change(expected)} step time, measured {_change(observed)}{note}.")
            condition = "So" if len(records) >= LEAST_RECORDS else f"Until it has {LEAST_RECORDS} measured trials,"
            qualifier = "at least " if len(records) < LEAST_RECORDS else ""
            sentences.append(
                f"{condition} its intervals are {qualifier}{scale(records):.3g} times as wide as those of its model."
            )
        return " ".join(sentences)


def _change(removed: float) -> str:
    return f"{share(abs(removed))} {'less' if removed >= 0 else 'more'}"
