"""result.json: what scripts and CI guards read."""

from __future__ import annotations

import json

from advisor.report import Report


def render(report: Report) -> str:
    """The result contract as JSON; its schema is docs/result.schema.json. In ASCII: what a terminal would obey, or an
    encoder refuse, is an escape."""
    return json.dumps(report.result(), indent=2, allow_nan=False) + "\n"
