"""Steps of many ranks, side by side: a row for each stretch of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter, mul
from typing import Any

from profiler.schema import PHASES, Step
from profiler.store import Stretches

_TIMES = ("duration", *PHASES)
_times = attrgetter(*_TIMES)


def in_stretches(steps: Iterable[Step], stretches: Stretches) -> dict[int, Step]:
    """By number of the stretch, the mean of the steps that begin in it; None where one of them was not measured."""
    held = groupby(steps, key=lambda step: stretches.number(step.index))
    return {number: _mean(list(each)) for number, each in held if number is not None}


def _mean(steps: Sequence[Step]) -> Step:
    counts = [step.count for step in steps]
    count = sum(counts)
    columns = zip(_TIMES, zip(*map(_times, steps), strict=True), strict=True)
    means: dict[str, Any] = {
        name: None if None in column else sum(map(mul, counts, column)) / count for name, column in columns
    }
    return replace(steps[0], count=count, **means)
