"""Quantiles of values that stand for several."""

from collections.abc import Iterable


def quantile(weighted: Iterable[tuple[float, float]], q: float) -> float:
    """The least value with the share `q` of all weight at or below it; `weighted` are (value, weight), at least one."""
    ordered = sorted(weighted)
    wanted = q * sum(weight for _, weight in ordered)
    below = 0.0
    for value, weight in ordered:
        below += weight
        if below >= wanted * (1 - 1e-12):
            return value
    return ordered[-1][0]
