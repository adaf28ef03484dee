"""The report's metrics: what each comes to in a run, or why there is no number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.metrics import all_metrics
from advisor.metrics.base import Metric, Metrics, Missing


@dataclass(frozen=True, slots=True)
class Told:
    """A metric that has a unit. Without a value: what is missing, and how to get it."""

    metric: Metric[Any]
    value: float | None
    missing: str = ""
    remedy: str = ""

    @property
    def unit(self) -> str:
        """As the metric has it."""
        return self.metric.unit or ""

    @property
    def meaning(self) -> str:
        """Its docstring as running text."""
        return " ".join(self.metric.doc.replace("`", "").split())


def quantities(metrics: Metrics) -> Iterator[Told]:
    """All of them, by name."""
    for one in all_metrics():
        if one.unit is None:
            continue
        try:
            value = float(metrics[one])
        except Missing as missing:
            yield Told(one, None, missing.what, missing.remedy)
        else:
            if math.isfinite(value):
                yield Told(one, value)
            else:
                yield Told(one, None, "It has no finite value", "Record for longer.")
