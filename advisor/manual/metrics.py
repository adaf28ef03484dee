"""Generate docs/metrics.md: a table for each area."""

import sys
from collections.abc import Sequence
from typing import Any

from advisor.manual import markdown
from advisor.metrics.base import Metric
from advisor.report import pages


def document(metrics: Sequence[Metric[Any]]) -> str:
    """Return docs/metrics.md: each metric by area, with its unit and definition."""
    parts = ["# Metrics", markdown.generated(of="the metrics themselves")]
    for area in sorted({metric.compute.__module__ for metric in metrics}):
        rows = [
            (f"`{one.name}`", one.label, pages.unit(one), pages.meaning(one))
            for one in metrics
            if one.compute.__module__ == area
        ]
        about = pages.paragraphs(sys.modules[area].__doc__ or "")[0]
        name = area.rpartition(".")[2].capitalize()
        parts += [f"## {name}", about, markdown.table(("Metric", "Name", "Unit", "Meaning"), rows)]
    return markdown.document(*parts)
