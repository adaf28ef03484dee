"""The metrics, one module per area; each metric is a pure function with a unit and a docstring."""

import importlib
import pkgutil
from typing import Any

from advisor.metrics.base import Metric, Metrics, Missing, Need, Threshold

__all__ = ["Metric", "Metrics", "Missing", "Need", "Threshold", "all_metrics"]


def all_metrics() -> tuple[Metric[Any], ...]:
    """Return every metric, sorted by name."""
    metrics: dict[str, Metric[Any]] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        metrics |= {metric.name: metric for metric in vars(module).values() if isinstance(metric, Metric)}
    return tuple(metrics[name] for name in sorted(metrics))
