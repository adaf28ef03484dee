"""Evaluate the report's metrics: the value of each in a run, or why there is none."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from advisor.metrics import all_metrics
from advisor.metrics.base import Metric, Metrics, Missing
from advisor.report import pages
from advisor.units import quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A metric that has a unit: its value, or what is missing and how to get it."""

    name: str
    label: str
    unit: str
    meaning: str
    value: float | None = None
    missing: str = ""
    remedy: str = ""

    @property
    def text(self) -> str:
        """Return the value with its unit."""
        return "not measured" if self.value is None else quantity(self.value, self.unit)


def quantities(metrics: Metrics) -> Iterator[Quantity]:
    """Return all metrics that have a unit, by name."""
    return (_quantity(metric, metrics) for metric in all_metrics() if metric.unit is not None)


def meaning(one: Metric[Any]) -> str:
    """Return the meaning of a metric as plain text."""
    return pages.meaning(one).replace("`", "")


def brief(one: Metric[Any]) -> str:
    """Return the first sentence of the meaning."""
    sentence, dot, _ = meaning(one).partition(". ")
    return sentence + dot.strip()


def _quantity(one: Metric[Any], metrics: Metrics) -> Quantity:
    description = Quantity(name=one.name, label=one.label, unit=one.unit or "", meaning=meaning(one))
    try:
        value = metrics[one]
    except Missing as missing:
        return replace(description, missing=missing.what, remedy=missing.remedy)
    if not math.isfinite(value):
        return replace(description, missing="Its value is not finite", remedy="Record for longer.")
    return replace(description, value=value)
