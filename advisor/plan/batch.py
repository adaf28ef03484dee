"""Find the largest micro-batch from the measured peaks of two."""

import math
from dataclasses import dataclass

from advisor.models.memory import Slope, slope
from profiler.errors import ProfilerError

# Samples that tensor cores and their tiles like a batch to be a multiple of.
MULTIPLE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """peak(B) = fixed + each x B, and the room that this leaves. Sizes in bytes."""

    line: Slope
    budget: float
    """Bytes of a GPU that may be filled."""

    @property
    def largest(self) -> int:
        """Return the largest micro-batch; 0 if not even one sample fits."""
        return max(0, math.floor((self.budget - self.line.fixed) / self.line.each))

    @property
    def even(self) -> int:
        """Return the largest micro-batch rounded down to a multiple of eight; 0 if there is none."""
        return self.largest // MULTIPLE * MULTIPLE


def of_peaks(peaks: tuple[tuple[int, float], ...], budget: float) -> BatchPlan:
    """Return the plan for two peaks, each (micro-batch, peak in bytes).

    Raises:
        ProfilerError: they are not two sizes, or the larger one does not take more.
    """
    if len(peaks) != 2 or peaks[0][0] == peaks[1][0]:
        raise ProfilerError(
            "`plan` needs the peaks of two micro-batch sizes to calculate the memory per sample.",
            "Give both: --peak 8:21GB --peak 16:31GB.",
        )
    line = slope(*sorted(peaks))
    if line.each <= 0 or line.fixed < 0:
        raise ProfilerError(
            "The second peak must be larger than the first, because memory grows with the batch.",
            "Measure torch.cuda.max_memory_allocated() for both sizes, each in a separate run.",
        )
    return BatchPlan(line=line, budget=budget)
