"""Quantiles of a stream in bounded memory: a histogram with logarithmic bins.

The bins are those of `profiler.schema.Sketch`; the estimate inside a bin and the bound on its error are DDSketch's
(Masson, Rim, Lee: "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from profiler.schema import Sketch

GROWTH = 1.02
"""Ratio of a bin's bounds: quantiles are accurate to (GROWTH - 1) / (GROWTH + 1), 0.99 %."""

EDGE = 1200
"""Largest absolute bin number: values of 5e-11 to 2e10; in seconds, from below a clock tick to above any run."""

_SCALE = 1 / math.log(GROWTH)
_CENTRE = 2 / (1 + GROWTH)  # center of a bin / its upper bound; relative distances to both bounds are equal


class Quantiles:
    """The distribution of a non-negative quantity; values below zero, due to clock noise, count as zero."""

    def __init__(self) -> None:
        self.zeros = 0
        self.bins: dict[int, int] = {}

    @classmethod
    def from_sketch(cls, *sketches: Sketch) -> Quantiles:
        """Return the distribution of all values in stored rows, which may come from anyone; more can be added."""
        quantiles = cls()
        for sketch in sketches:
            quantiles.zeros += max(0, sketch.zeros)
            for k, count in sketch.bins.items():
                if count > 0:
                    k = min(EDGE, max(-EDGE, k))
                    quantiles.bins[k] = quantiles.bins.get(k, 0) + count
        return quantiles

    def to_sketch(self, pid: int, quantity: str) -> Sketch:
        """Return the row to store."""
        return Sketch(pid=pid, quantity=quantity, zeros=self.zeros, bins=dict(sorted(self.bins.items())))

    @property
    def count(self) -> int:
        """Return the number of values added."""
        return self.zeros + sum(self.bins.values())

    def add(self, value: float) -> None:
        """Add a value; NaN is not a measurement and is left out."""
        self.extend((value,))

    def extend(self, values: Iterable[float]) -> None:
        """Add many values as `add` does, but faster: a fast loop has thousands of steps per second."""
        bins = self.bins
        for value in values:
            if value > 0:
                k = math.ceil(math.log(value) * _SCALE) if value < math.inf else EDGE
                if not -EDGE <= k <= EDGE:
                    k = EDGE if k > 0 else -EDGE
                bins[k] = bins.get(k, 0) + 1
            elif value <= 0:
                self.zeros += 1

    def quantile(self, q: float) -> float | None:
        """Return the smallest value that a share `q` (0 to 1) of all values do not exceed, or None.

        None means that there are no values.

        Raises:
            ValueError: `q` is not between 0 and 1.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"the quantile must be between 0 and 1, not {q}")
        count = self.zeros
        rank = max(1, math.ceil(q * self.count - 1e-9))  # 0.07 * 100 is a little more than 7
        value = 0.0 if count else None
        for k in sorted(self.bins):
            if count >= rank:
                break
            count += self.bins[k]
            value = GROWTH**k * _CENTRE
        return value
