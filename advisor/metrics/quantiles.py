"""Compute quantiles of weighted values."""

from collections.abc import Iterable


def quantile(weighted: Iterable[tuple[float, float]], q: float) -> float:
    """Return the least value with at least the share `q` of all weight at or below it.

    `weighted` holds at least one pair (value, weight).
    """
    ordered = sorted(weighted)
    wanted = q * sum(weight for _, weight in ordered)
    below = 0.0
    for value, weight in ordered:
        below += weight
        if below >= wanted * (1 - 1e-12):
            return value
    return ordered[-1][0]
