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
    interval = speedup(*times, mean=mean, together=min(period, min(map(len, times)) // 2))
    process_noise, freedom = _process_noise(before, after, mean)
    wide_interval = widened(interval, _student(freedom) * process_noise * math.sqrt(1 / len(before) + 1 / len(after)))
    removed = (1 - 1 / wide_interval.low, 1 - 1 / wide_interval.estimate, 1 - 1 / wide_interval.high)
    extra_memory = _more_memory(before, after)
    losses_agree, difference = likeness(before, after)
    if same_losses and losses_agree is False:
        verdict, reason = Verdict.HARMFUL, f"The losses differ. {difference}"
    elif memory is not None:
        verdict, reason = _of_memory(extra_memory, memory, removed, predicted)
    else:
        verdict, reason = _of_time(wide_interval, predicted, 1.0 if spiky else _slower_tenth(before, after))
        if verdict is Verdict.INCONCLUSIVE:
            reason = longer(
                _least(removed[1], predicted) / (2 if removed[0] > 0 else 1),
                steps=min(map(len, times)) // len(before),
                steps_noise=math.log(interval.high / interval.low) / (2 * TWO_SIDED),
                processes=len(before),
                process_noise=process_noise,
            )
    return Verified(
        rule=rule,
        verdict=verdict,
        predicted=predicted,
        removed=removed,
        seconds=(mean(times[0]), mean(times[1])),
        memory=extra_memory,
        losses_agree=losses_agree,
        steps=min(map(len, times)),
        processes=min(len(before), len(after)),
        why=reason,
        leaves=leaves,
    )


def _of_time(measured: Interval, predicted: Triple | None, p90_ratio: float) -> tuple[Verdict, str]:
    if measured.high < 1 / NO_SPEEDUP:
        return Verdict.HARMFUL, "A step takes longer."
    low, high = (0.01, 0.99) if predicted is None else (predicted[0], predicted[2])
    verdict = verdict_of(measured, (1 / (1 - low), 1 / (1 - min(high, 0.999))), p90_ratio)
    if verdict is Verdict.HARMFUL:
        return verdict, f"The slowest 10% of the steps take at least {share(p90_ratio - 1)} longer."
    wide = 1 / measured.low - 1 / measured.high > WIDEST * (1 - 1 / measured.estimate)
    if verdict is Verdict.CONFIRMED and predicted is not None and wide:
        return Verdict.INCONCLUSIVE, ""
    return verdict, ""


def _slower_tenth(before: Sequence[Arm], after: Sequence[Arm]) -> float:
    """Return the low end of the ratio of 90th percentiles, after/before.

    The low end allows for the differences between processes of one arm.
    """
    ratio = _p90([time for arm in after for time in arm.times]) / _p90([time for arm in before for time in arm.times])
    process_noise, freedom = _process_noise(before, after, _p90)
    noise = _student(freedom) * process_noise * math.sqrt(1 / len(before) + 1 / len(after))
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
    refuted_limit, partial_limit, better_limit = FREED
    freed_share = more / promised
    if freed_share < refuted_limit:
        return Verdict.REFUTED, ""
    if freed_share < partial_limit:
        return Verdict.PARTIAL, ""
    return (Verdict.BETTER if freed_share > better_limit else Verdict.CONFIRMED), ""


def _process_noise(before: Sequence[Arm], after: Sequence[Arm], mean: Estimator) -> tuple[float, int]:
    """Return the standard deviation of the log of a process's time, and its degrees of freedom.

    It is derived from the differences of processes within an arm.
    """
    logs = [[math.log(mean(arm.times)) for arm in group] for group in (before, after)]
    freedom = sum(len(group) - 1 for group in logs)
    if freedom == 0:
        return 0.0, 0
    return math.sqrt(sum((len(group) - 1) * stdev(group) ** 2 for group in logs if len(group) > 1) / freedom), freedom


def _student(freedom: int) -> float:
    return next((_T[degrees] for degrees in sorted(_T, reverse=True) if degrees <= freedom), 1.0)


def _more_memory(before: Sequence[Arm], after: Sequence[Arm]) -> int | None:
    peaks = [[arm.memory for arm in arms if arm.memory is not None] for arms in (before, after)]
    return max(peaks[1]) - max(peaks[0]) if all(peaks) else None


def _p90(times: Sequence[float]) -> float:
    return sorted(times)[int(0.9 * (len(times) - 1))]
