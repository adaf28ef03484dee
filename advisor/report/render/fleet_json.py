"""Render fleet.json, which scripts read: what the page shows, and no more rows.

Its schema is docs/fleet.schema.json.
"""

import json
from dataclasses import asdict
from typing import Any

from advisor.fleet.overview import Fleet, FleetPart, Slower
from advisor.report.render.picked import picked

SCHEMA = "profile-train/fleet@1"


def render(fleet: Fleet) -> str:
    """Return the fleet as JSON. It is ASCII."""
    return json.dumps(as_dictionary(fleet), indent=2, allow_nan=False) + "\n"


def as_dictionary(fleet: Fleet) -> dict[str, Any]:
    """Return fleet.json as a dictionary."""
    return {
        "schema": SCHEMA,
        "unit": f"{fleet.unit}-hours",
        "since": fleet.since or None,
        "status": dict(fleet.status),
        "total": _part(fleet.total),
        "other_unit": _part(fleet.other) if fleet.other else None,
        "by": {name: [_part(part) for part in parts] for name, parts in fleet.by.items()},
        "weeks": [_part(week) for week in fleet.weeks],
        "changes": [asdict(change) for change in fleet.changes],
        "plan_hours": fleet.plan_hours,
        "regressions": [_slower(one) for one in fleet.regressions],
        "slow_hosts": [_slower(one) for one in fleet.slow_hosts],
        "look": [asdict(run) for run in fleet.look],
        "not_complete": [{"folder": folder, "status": status, "why": why} for folder, status, why in fleet.unread],
    }


def _part(part: FleetPart) -> dict[str, Any]:
    return {
        **picked(part, "name runs hours money measured_hours=measured ended_badly_hours=ended_badly"),
        "lost_hours": dict(part.lost),
        "lost_money": part.lost_money,
    }


def _slower(one: Slower) -> dict[str, Any]:
    return {
        **picked(one, "project script host before=before_name after=after_name"),
        "step_time_s": picked(one, "before after"),
        "change": one.change,
        "runs": {"before": one.runs[0], "after": one.runs[1]},
        "since": one.day,
    }
