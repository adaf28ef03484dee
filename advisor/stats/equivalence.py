"""Test whether a changed program trains as the unchanged one did, over the compared steps.

Both start from the same seed and see the same batches. The test proves agreement over that short horizon only; the
declared quality target decides.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from advisor.stats.significance import DRAWS, block_length, mean_interval

# Minimum margin: a smaller relative difference of losses is not visible on a curve.
LEAST_MARGIN = 0.005

# Margin as a multiple of the difference between two runs of the same program.
NOISE_MARGIN = 2.0

# Two one-sided tests at 5 % each: the 90 % interval lies within the margin (Schuirmann, "A comparison of the two
# one-sided tests procedure and the power approach", 1987).
LEVEL = 0.90

# Share of steps that may be skipped or have a loss that is not finite.
MAX_LOST = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """The comparison of two runs' losses, step by step."""

    difference: float
    """Mean of log(changed) - log(unchanged)."""
    low: float
    high: float
    """The bounds `low` and `high` are the 90 % interval of `difference`."""
    margin: float
    """Largest absolute difference that counts as agreement."""
    lost: float
    """Share of the steps that either run skipped or ended without a finite loss."""

    @property
    def losses_agree(self) -> bool:
        """Return whether the interval lies within the margin and hardly any step was lost."""
        return -self.margin < self.low and self.high < self.margin and self.lost <= MAX_LOST

    @property
    def differs(self) -> bool:
        """Return whether the whole interval lies beyond the margin.

        If neither `losses_agree` nor `differs` holds, chance may have made the difference.
        """
        return self.low > self.margin or self.high < -self.margin


def equivalence(
    unchanged: Sequence[float | None], changed: Sequence[float | None], *, spread: float = 0.0, draws: int = DRAWS
) -> Equivalence:
    """Compare losses at the same steps; None is a skipped step.

    Args:
        unchanged: Losses of the unchanged program.
        changed: Losses of the changed program.
        spread: Mean absolute difference of log losses of two runs of the unchanged program.
        draws: Bootstrap draws.

    Raises:
        ValueError: the series differ in length, a loss is zero or less (a ratio of them means nothing), or fewer than
            two blocks of steps have a loss in both.
    """
    if len(unchanged) != len(changed) or spread < 0:
        raise ValueError(
            f"{len(unchanged)} and {len(changed)} losses, spread {spread}: these are not the same steps of two runs"
        )
    pairs = [
        (before, after)
        for before, after in zip(unchanged, changed, strict=True)
        if before is not None and after is not None and math.isfinite(before) and math.isfinite(after)
    ]
    if any(loss <= 0 for pair in pairs for loss in pair):
        raise ValueError("losses of zero or less have no ratio: compare another quantity")
    block = block_length(len(pairs))
    if len(pairs) < 2 * block:
        raise ValueError(f"{len(pairs)} steps with a loss in both runs are fewer than two blocks of {block}")
    differences = [math.log(after / before) for before, after in pairs]
    low, high = mean_interval(differences, block, draws=draws, level=LEVEL)
    return Equivalence(
        difference=fmean(differences),
        low=low,
        high=high,
        margin=max(math.log1p(LEAST_MARGIN), NOISE_MARGIN * spread),
        lost=(len(unchanged) - len(pairs)) / len(unchanged),
    )
