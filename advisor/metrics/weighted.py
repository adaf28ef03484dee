"""Means and quantiles of weighted values: pairs (value, weight), at least one."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from profiler.quantile_sketch import Quantiles
from profiler.schema import Sketch


class Merged(Protocol):
    """A row that stands for `count` merged ones, with their means."""

    @property
    def count(self) -> int: ...  # noqa: D102


def measured(rows: Iterable[Merged], column: str) -> list[tuple[float, float]]:
    """Return the value of a column in each row that has one, weighted with the row's count."""
    return [(value, row.count) for row in rows if (value := getattr(row, column)) is not None]


def weighted_mean(weighted: Iterable[tuple[float, float]]) -> float:
    """Return the mean in which each value counts by its weight."""
    pairs = list(weighted)
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)


def column_mean(rows: Iterable[Merged], column: str) -> float | None:
    """Return the mean of a column; None if no row has a value."""
    values = measured(rows, column)
    return weighted_mean(values) if values else None


def quantile(weighted: Iterable[tuple[float, float]], q: float) -> float:
    """Return the least value with at least the share `q` of all weight at or below it."""
    ordered = sorted(weighted)
    target = q * sum(weight for _, weight in ordered)
    weight_below = 0.0
    for value, weight in ordered:
        weight_below += weight
        if weight_below >= target * (1 - 1e-12):
            return value
    return ordered[-1][0]


def quantile_of_run(weighted: Sequence[tuple[float, float]], sketches: Iterable[Sketch], q: float) -> float:
    """Return a quantile of all values of the run, from their sketches if rows were merged."""
    estimate = Quantiles.from_sketch(*sketches).quantile(q) if any(weight > 1 for _, weight in weighted) else None
    return quantile(weighted, q) if estimate is None else estimate
