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
"""Bins lie within +-EDGE, 5e-11 to 2e10: in seconds, below a clock's tick and above any run."""

_SCALE = 1 / math.log(GROWTH)
_CENTRE = 2 / (1 + GROWTH)  # of a bin, as a share of its upper bound: equally far, relatively, from both bounds


class Quantiles:
    """The distribution of a non-negative quantity; values below zero, due to clock noise, count as zero."""

    def __init__(self) -> None:
        self.zeros = 0
        self.bins: dict[int, int] = {}

    @classmethod
    def from_sketch(cls, sketch: Sketch) -> Quantiles:
        """Return the distribution of a stored row, to be continued."""
        quantiles = cls()
        quantiles.zeros = max(0, sketch.zeros)
        for k, count in sketch.bins.items():
            if count > 0:
                quantiles._fill(k, count)
        return quantiles

    def to_sketch(self, pid: int, quantity: str) -> Sketch:
        """Return the row to store."""
        return Sketch(pid=pid, quantity=quantity, zeros=self.zeros, bins=dict(sorted(self.bins.items())))

    @property
    def count(self) -> int:
        """Return the number of values added."""
        return self.zeros + sum(self.bins.values())

    def add(self, value: float, count: int = 1) -> None:
        """Add the value `count` times; NaN is not a measurement and is left out."""
        if value > 0:
            k = EDGE if value == math.inf else math.ceil(math.log(value) * _SCALE)
            self._fill(k, count)
        elif value <= 0:
            self.zeros += count

    def extend(self, values: Iterable[float]) -> None:
        """Add many values as `add` does, but faster: a fast loop has thousands of steps per second."""
        bins = self.bins
        for value in values:
            if 0 < value < math.inf:
                k = math.ceil(math.log(value) * _SCALE)
                if -EDGE <= k <= EDGE:
                    bins[k] = bins.get(k, 0) + 1
                    continue
            self.add(value)

    def merge(self, other: Quantiles) -> None:
        """Add all values of `other`."""
        self.zeros += other.zeros
        for k, count in other.bins.items():
            self._fill(k, count)

    def quantile(self, q: float) -> float | None:
        """Return the smallest value that a share `q` (0 to 1) of all values do not exceed, or None.

        None means that there are no values.

        Raises:
            ValueError: `q` is not between 0 and 1.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile is asked for by a share from 0 to 1, not {q}")
        below = self.zeros
        wanted = max(1, math.ceil(q * self.count - 1e-9))  # 0.07 * 100 is a little more than 7
        value = 0.0 if below else None
        for k in sorted(self.bins):
            if below >= wanted:
                break
            below += self.bins[k]
            value = GROWTH**k * _CENTRE
        return value

    def _fill(self, k: int, count: int) -> None:
        k = min(EDGE, max(-EDGE, k))
        self.bins[k] = self.bins.get(k, 0) + count
