"""From the times of two ways of training to a verdict on the prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean, stdev

from advisor.equivalence import equivalence
from advisor.models.effects import Triple
from advisor.significance import Interval, TrialOutcome, outcome, speedup, trimmed_mean, widened
from advisor.verify.arm import Arm

# If so much of a step's cost falls between steps in either arm, trimming would leave out what the change is about.
SPIKY = 0.01

# 97.5 % quantile of Student's t over that of the normal distribution, by degrees of freedom: with three processes an
# arm, what they differ by is known from four (Student, "The Probable Error of a Mean", 1908).
_T = {1: 6.48, 2: 2.20, 3: 1.62, 4: 1.42, 5: 1.31, 6: 1.25, 8: 1.18, 10: 1.14}


class Verdict(Enum):
    """What became of a piece of advice that was tried."""

    CONFIRMED = "confirmed"
    """Faster, and as much as predicted."""
    BETTER = "better"
    """Faster than predicted."""
    PARTIAL = "partial"
    """Faster, but less than predicted."""
    REFUTED = "refuted"
    """Not faster."""
    HARMFUL = "harmful"
    """Slower, or one step in ten takes longer than before by more than 5 %, or it trains otherwise."""
    INCONCLUSIVE = "inconclusive"
    """Too noisy to tell."""
    FAILED = "failed"
    """The change could not be made, or the program ended with it."""

    @property
    def is_kept(self) -> bool:
        """The change is worth having."""
        return self in (Verdict.CONFIRMED, Verdict.BETTER, Verdict.PARTIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Of a trial that could be measured; shares of the step time that went, negative if it grew."""

    verdict: Verdict
    removed: Triple
    """low, estimate, high: the 95 % interval."""
    seconds: tuple[float, float]
    """A step took, before and after."""
    memory: int | None
    """Bytes of GPU memory more than before, at the peak; None if not measured."""
    losses_agree: bool | None
    """None where they could not be compared."""
    steps: int
    """Measured in each arm."""
    processes: int


def judged(before: Sequence[Arm], after: Sequence[Arm], predicted: Triple | None, *, same_losses: bool) -> Judged:
    """`predicted` is the share that was to go, or None: then anything faster is confirmed.

    `same_losses` is whether the change is one that must train alike. ValueError with too few steps.
    """
    spiky = max(arm.between for arm in (*before, *after)) > SPIKY
    mean = fmean if spiky else trimmed_mean
    times = [[time for arm in arms for time in arm.times] for arms in (before, after)]
    measured = widened(speedup(*times, mean=mean), _noise(before, after, mean))
    agree = _agree(before, after)
    low, high = (0.01, 0.99) if predicted is None else (predicted[0], predicted[2])
    ratio = _p90(times[1]) / _p90(times[0])
    found = outcome(measured, (1 / (1 - low), 1 / (1 - min(high, 0.999))), 0.0001 if spiky else ratio)
    return Judged(
        verdict=_verdict(found, measured, broken=same_losses and agree is False),
        removed=(1 - 1 / measured.low, 1 - 1 / measured.estimate, 1 - 1 / measured.high),
        seconds=(mean(times[0]), mean(times[1])),
        memory=_more_memory(before, after),
        losses_agree=agree,
        steps=min(map(len, times)),
        processes=min(len(before), len(after)),
    )


def _verdict(found: TrialOutcome, measured: Interval, *, broken: bool) -> Verdict:
    if broken or found is TrialOutcome.FAILED or measured.high < 1:
        return Verdict.HARMFUL
    return Verdict(found.value)


def _noise(before: Sequence[Arm], after: Sequence[Arm], mean: object) -> float:
    """Standard deviation of the log ratio of two arms that are the same program, from what processes of one arm
    differ by."""
    arms = [[math.log(fmean(arm.times)) for arm in each] for each in (before, after)]
    freedom = sum(len(each) - 1 for each in arms)
    if freedom == 0:
        return 0.0
    pooled = math.sqrt(sum((len(each) - 1) * stdev(each) ** 2 for each in arms if len(each) > 1) / freedom)
    factor = next((_T[known] for known in sorted(_T, reverse=True) if known <= freedom), 1.0)
    return factor * pooled * math.sqrt(sum(1 / len(each) for each in arms))


def _agree(before: Sequence[Arm], after: Sequence[Arm]) -> bool | None:
    number = min(len(arm.losses) for arm in (*before, *after))
    try:
        unchanged, changed = before[0].losses[:number], after[0].losses[:number]
        spread = 0.0
        if len(before) > 1:
            again = before[1].losses[:number]
            spread = fmean(
                abs(math.log(b / a)) for a, b in zip(unchanged, again, strict=True) if a is not None and b is not None
            )
        return equivalence(unchanged, changed, spread=spread).losses_agree
    except ValueError:  # too few, or not positive: nothing can be said
        return None


def _more_memory(before: Sequence[Arm], after: Sequence[Arm]) -> int | None:
    peaks = [[arm.memory for arm in each if arm.memory is not None] for each in (before, after)]
    return max(peaks[1]) - max(peaks[0]) if all(peaks) else None


def _p90(times: Sequence[float]) -> float:
    return sorted(times)[int(0.9 * (len(times) - 1))]
