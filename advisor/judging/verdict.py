"""Define how a trial of a piece of advice can end."""

from enum import Enum

from advisor.stats.significance import NO_SPEEDUP, Interval

# Ratio of 90th percentiles above which a change is harmful, whatever its mean.
WORSE_P90 = 1.05


class Verdict(Enum):
    """The outcome of a piece of advice that was tried."""

    CONFIRMED = "confirmed"
    """As predicted."""
    BETTER = "better"
    """More than predicted."""
    PARTIAL = "partial"
    """Less than predicted, but something."""
    REFUTED = "refuted"
    """No gain."""
    HARMFUL = "harmful"
    """Slower, or one step in ten takes over 5 % longer than before, or the losses differ."""
    INCONCLUSIVE = "inconclusive"
    """Too noisy to decide."""
    FAILED = "failed"
    """The change could not be made, or the program failed with it."""

    @property
    def is_kept(self) -> bool:
        """Return whether the change is worth keeping."""
        return self in (Verdict.CONFIRMED, Verdict.BETTER, Verdict.PARTIAL)

    @property
    def is_against(self) -> bool:
        """Return whether the change is not worth having."""
        return self in (Verdict.REFUTED, Verdict.HARMFUL)


def verdict_of(measured: Interval, predicted: tuple[float, float], p90_ratio: float) -> Verdict:
    """Return the verdict on a measured speed-up against the predicted (low, high).

    `p90_ratio` is the 90th percentile after over the one before.

    Raises:
        ValueError: the prediction is not an interval, or the ratio is not positive.
    """
    if predicted[0] > predicted[1] or p90_ratio <= 0:
        raise ValueError(f"invalid prediction {predicted} or ratio of percentiles {p90_ratio}")
    if p90_ratio > WORSE_P90:
        return Verdict.HARMFUL
    if measured.high < NO_SPEEDUP:
        return Verdict.REFUTED
    if measured.low <= NO_SPEEDUP:
        return Verdict.INCONCLUSIVE
    if measured.low > predicted[1]:
        return Verdict.BETTER
    return Verdict.PARTIAL if measured.high < predicted[0] else Verdict.CONFIRMED
