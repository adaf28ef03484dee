"""Judge a prediction by the times of two ways of training."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from advisor.judging.verdict import Verdict, verdict_of
from advisor.models.effects import Triple
from advisor.stats.significance import NO_SPEEDUP, TWO_SIDED, Estimator, Interval, speedup, trimmed_mean, widened
from advisor.units import share
from advisor.verify.arm import Arm
from advisor.verify.kept import Verified
from advisor.verify.longer import longer
from advisor.verify.losses import likeness

# Share of a step's cost between steps, in either arm, above which trimming would leave out the effect of the change.
SPIKY = 0.01

# Width of the 95 % interval divided by the gain, above which a trial does not confirm a prediction: a gain of 45 % that
# could also be 3 or 69 % overlaps any prediction (assumption).
WIDEST = 1.0

# 97.5 % quantile of Student's t divided by the normal distribution's, by degrees of freedom: three processes per arm
# give four degrees of freedom (Student, "The Probable Error of a Mean", 1908).
_T = {1: 6.48, 2: 2.20, 3: 1.62, 4: 1.42, 5: 1.31, 6: 1.25, 8: 1.18, 10: 1.14}

# Measured share of the predicted saving. Below the first: no effect; below the second: less than predicted; above the
# third: more than predicted (assumption: estimates are right to a factor of about one and a half).
FREED = (0.05, 0.5, 1.5)


def judged(
    before: Sequence[Arm],
    after: Sequence[Arm],
    predicted: Triple | None,
    *,
    same_losses: bool,
    memory: int | None = None,
    rule: str = "",
    leaves: str = "",
) -> Verified:
    """Judge the trial of a rule's change.

    Args:
        before: The processes without the change.
        after: The processes with it.
        predicted: The predicted removed share; None: anything faster is confirmed.
        same_losses: Whether the losses must stay the same.
        memory: Predicted additional bytes (negative), if the purpose of the change is to free memory.
        rule: The rule that advises it.
        leaves: The part of the advice that was not tried.

    Raises:
        ValueError: there are too few steps.
    """
    spiky = max(arm.between for arm in (*before, *after)) > SPIKY
    mean = fmean if spiky else trimmed_mean
    times = [[time for arm in arms for time in arm.times] for arms in (before, after)]
    # Draw blocks of a whole period, each with its epoch start: the number of epoch starts is not random.
    period = max(arm.period for arm in (*before, *after)) if spiky else 1
    drawn = speedup(*times, mean=mean, together=min(period, min(map(len, times)) // 2))
    process, freedom = _process_noise(before, after, mean)
    measured = widened(drawn, _student(freedom) * process * math.sqrt(1 / len(before) + 1 / len(after)))
    removed = (1 - 1 / measured.low, 1 - 1 / measured.estimate, 1 - 1 / measured.high)
    more = _more_memory(before, after)
    losses_agree, difference = likeness(before, after)
    if same_losses and losses_agree is False:
        verdict, why = Verdict.HARMFUL, f"The losses differ. {difference}"
    elif memory is not None:
        verdict, why = _of_memory(more, memory, removed, predicted)
    else:
        verdict, why = _of_time(measured, predicted, 1.0 if spiky else _slower_tenth(before, after))
        if verdict is Verdict.INCONCLUSIVE:
            why = longer(
                _least(removed[1], predicted) / (2 if removed[0] > 0 else 1),
                steps=min(map(len, times)) // len(before),
                steps_noise=math.log(drawn.high / drawn.low) / (2 * TWO_SIDED),
                processes=len(before),
                process_noise=process,
            )
    return Verified(
        rule=rule,
        verdict=verdict,
        predicted=predicted,
        removed=removed,
        seconds=(mean(times[0]), mean(times[1])),
        memory=more,
        losses_agree=losses_agree,
        steps=min(map(len, times)),
        processes=min(len(before), len(after)),
        why=why,
        leaves=leaves,
    )


def _of_time(measured: Interval, predicted: Triple | None, p90_ratio: float) -> tuple[Verdict, str]:
    if measured.high < 1 / NO_SPEEDUP:
        return Verdict.HARMFUL, "A step takes longer."
    low, high = (0.01, 0.99) if predicted is None else (predicted[0], predicted[2])
    found = verdict_of(measured, (1 / (1 - low), 1 / (1 - min(high, 0.999))), p90_ratio)
    if found is Verdict.HARMFUL:
        return found, f"The slowest 10% of the steps take at least {share(p90_ratio - 1)} longer."
    wide = 1 / measured.low - 1 / measured.high > WIDEST * (1 - 1 / measured.estimate)
    if found is Verdict.CONFIRMED and predicted is not None and wide:
        return Verdict.INCONCLUSIVE, ""
    return found, ""


def _slower_tenth(before: Sequence[Arm], after: Sequence[Arm]) -> float:
    """Return the low end of the ratio of 90th percentiles, after/before.

    The low end allows for the differences between processes of one arm.
    """
    ratio = _p90([time for arm in after for time in arm.times]) / _p90([time for arm in before for time in arm.times])
    process, freedom = _process_noise(before, after, _p90)
    noise = _student(freedom) * process * math.sqrt(1 / len(before) + 1 / len(after))
    return ratio / math.exp(TWO_SIDED * noise)


def _least(removed: float, predicted: Triple | None) -> float:
    """Return the gain that a longer trial should find: the smaller of the observed and the predicted one."""
    return min(abs(removed), predicted[0]) if predicted and predicted[0] > 0 else abs(removed)


def _of_memory(more: int | None, promised: int, removed: Triple, predicted: Triple | None) -> tuple[Verdict, str]:
    """Judge whether the memory was freed, at no more than the predicted cost in time."""
    if more is None:
        return Verdict.INCONCLUSIVE, "GPU memory was not measured."
    if predicted is not None and removed[2] < predicted[0]:
        return Verdict.HARMFUL, f"A step takes {share(-removed[1])} longer, which is more than predicted."
    nothing, less, beyond = FREED
    part = more / promised
    if part < nothing:
        return Verdict.REFUTED, ""
    if part < less:
        return Verdict.PARTIAL, ""
    return (Verdict.BETTER if part > beyond else Verdict.CONFIRMED), ""


def _process_noise(before: Sequence[Arm], after: Sequence[Arm], mean: Estimator) -> tuple[float, int]:
    """Return the standard deviation of the log of a process's time, and its degrees of freedom.

    It is derived from the differences of processes within an arm.
    """
    arms = [[math.log(mean(arm.times)) for arm in each] for each in (before, after)]
    freedom = sum(len(each) - 1 for each in arms)
    if freedom == 0:
        return 0.0, 0
    return math.sqrt(sum((len(each) - 1) * stdev(each) ** 2 for each in arms if len(each) > 1) / freedom), freedom


def _student(freedom: int) -> float:
    return next((_T[known] for known in sorted(_T, reverse=True) if known <= freedom), 1.0)


def _more_memory(before: Sequence[Arm], after: Sequence[Arm]) -> int | None:
    peaks = [[arm.memory for arm in each if arm.memory is not None] for each in (before, after)]
    return max(peaks[1]) - max(peaks[0]) if all(peaks) else None


def _p90(times: Sequence[float]) -> float:
    return sorted(times)[int(0.9 * (len(times) - 1))]
