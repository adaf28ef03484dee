"""Steps of many ranks side by side, with one row per stretch of steps."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter, mul

from profiler.schema import PHASES, Step
from profiler.store import Stretches, with_columns

_TIMES = ("duration", *PHASES)
_times = attrgetter(*_TIMES)


def in_stretches(steps: Iterable[Step], stretches: Stretches) -> dict[int, Step]:
    """Return the mean of the steps that begin in each stretch, by the stretch's number.

    A column of such a mean is None if one of the steps did not measure it.
    """
    groups = groupby(steps, key=lambda step: stretches.number(step.index))
    rows = {number: tuple(group) for number, group in groups if number is not None}
    means = zip(*map(_means, rows.values()), strict=True)
    columns = dict(zip(("count", *_TIMES), means, strict=True)) if rows else {}
    return dict(zip(rows, with_columns([group[0] for group in rows.values()], **columns), strict=True))


def _means(steps: Sequence[Step]) -> tuple[float | None, ...]:
    """Return the number of steps and the mean of each column in `_TIMES`."""
    counts = [step.count for step in steps]
    count = sum(counts)
    columns = zip(*map(_times, steps), strict=True)
    return count, *(None if None in column else sum(map(mul, counts, column)) / count for column in columns)
