"""Quantiles of values that stand for several, and of logarithmic sketches."""

from collections.abc import Iterable, Mapping

from profiler.schema import Sketch

GROWTH = 1.02
"""Bin k of a sketch holds values in (GROWTH**(k-1), GROWTH**k]."""


def quantile(weighted: Iterable[tuple[float, float]], q: float) -> float:
    """The least value that holds the share `q` of all weight at or below it; `weighted` are (value, weight), at least one."""
    ordered = sorted(weighted)
    wanted = q * sum(weight for _, weight in ordered)
    below = 0.0
    for value, weight in ordered:
        below += weight
        if below >= wanted * (1 - 1e-12):
            return value
    return ordered[-1][0]


def sketch_quantile(sketch: Sketch, q: float) -> float:
    """The same from a sketch, right to 1 %: bins answer with their geometric middle."""
    return quantile(_weighted(sketch.zeros, sketch.bins), q)


def _weighted(zeros: int, bins: Mapping[int, int]) -> Iterable[tuple[float, float]]:
    if zeros:
        yield 0.0, zeros
    for k, number in bins.items():
        yield GROWTH ** (k - 0.5), number
