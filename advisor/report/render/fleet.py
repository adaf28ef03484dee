"""Render fleet.html, a self-contained file, and fleet.json; their size is bounded for any number of runs.

The schema of the JSON is docs/fleet.schema.json.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from advisor.fleet.columns import CAUSES
from advisor.fleet.overview import MOST_CELLS, MOST_ROWS, Fleet, FleetPart, Look, Slower
from advisor.fleet.queries import DIMENSIONS
from advisor.report.render.html import filled
from advisor.report.render.picked import picked
from advisor.units import digits, inline, money, share

SCHEMA = "profile-train/fleet@1"

WEEKS = 26
"""Most weeks of the trend that are shown."""

NAMELESS = "not recorded"


def page(fleet: Fleet, command: str) -> str:
    """Return fleet.html; `command` is shown as the one that made it."""
    return filled(
        "fleet.html",
        ["report.css", "fleet.css"],
        ["fleet.js", "report.js"],
        {"fleet": cells(fleet)},
        fleet=fleet,
        view=FleetView(fleet),
        command=command,
    )


def cells(fleet: Fleet) -> dict[str, object]:
    """Return the data that the page's filters add up: each name once, and the cells as rows of numbers."""
    names: dict[str, dict[str | None, int]] = {name: {} for name in DIMENSIONS}

    def number(dimension: str, name: str | None) -> int:
        numbers = names[dimension]
        return numbers.setdefault(name, len(numbers))

    rows = [
        [
            cell["week"],
            *(number(name, cell[column]) for name, column in DIMENSIONS.items()),
            cell["runs"],
            *(_short(cell[key]) for key in ("hours", "measured", "ended_badly", "lost_money")),
            *(_short(cell[f"hours_{cause}"]) for cause in CAUSES),
        ]
        for cell in fleet.cells
    ]
    return {
        "causes": list(CAUSES),
        "most": MOST_ROWS,
        "nameless": NAMELESS,
        "names": {name: list(numbers) for name, numbers in names.items()},
        "cells": rows,
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


class FleetView:
    """The fleet in words and formatted numbers."""

    causes = CAUSES
    nameless = NAMELESS

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.total = fleet.total
        self.unit = f"{fleet.unit}-hours"
        self.weeks = list(fleet.weeks)[-WEEKS:]
        self.busiest = max((week.hours for week in self.weeks), default=0.0)
        self.capped = len(fleet.cells) >= MOST_CELLS
        covered_hours = sum(cell["hours"] or 0.0 for cell in fleet.cells)
        self.covered = covered_hours / fleet.total.hours if fleet.total.hours else 1.0
        self.unread_count = sum(count for status, count in fleet.status.items() if status != "complete")

    @property
    def headline(self) -> str:
        """Return the page's first sentence."""
        if not self.total.runs:
            return "No run with measured hours was imported."
        lost_share = self.lost_share(self.total)
        if lost_share is None:
            return f"{digits(self.total.hours)} {self.unit}; lost time was not measured."
        cause = self.worst(self.total)
        return f"{lost_share} of {digits(self.total.measured)} measured {self.unit} were lost" + (
            f", mostly to {inline(cause)}." if cause else "."
        )

    @property
    def guidance(self) -> str:
        """Return what to change first."""
        if not self._fleet.changes:
            return ""
        change = self._fleet.changes[0]
        return f"Begin with {change.script}: {change.title}. It would have saved {digits(change.saves)} {self.unit}."

    def tiles(self) -> Sequence[tuple[str, str, str]]:
        """Return label, value and note of the numbers at the top."""
        total, fleet = self.total, self._fleet
        tiles = [("Runs", f"{sum(fleet.status.values()):,}", f"{self.unread_count:,} not complete")]
        tiles.append((self.unit, digits(total.hours), f"of {total.runs:,} runs"))
        tiles.append(("Lost", digits(total.lost_hours), f"{self.lost_share(total) or 'not measured'}"))
        if total.lost_money is not None:
            tiles.append(("Money lost", money(total.lost_money), "at the declared price"))
        tiles.append(("In failed runs", digits(total.ended_badly), f"{self.unit}, failed or killed"))
        tiles.append(("All advice saves", digits(fleet.plan_hours), self.unit))
        return tiles

    def lost_share(self, part: FleetPart) -> str | None:
        """Return the lost hours as a share of the hours of runs that measured them."""
        return share(min(1.0, part.lost_hours / part.measured)) if part.measured else None

    def hours(self, value: float | None) -> str:
        """Return hours without their unit."""
        return "not measured" if value is None else digits(value)

    def worst(self, lost: FleetPart | Look) -> str:
        """Return the label of the cause of most lost hours."""
        causes = {cause: hours for cause, hours in lost.lost.items() if hours}
        return CAUSES[max(causes, key=lambda cause: causes[cause])] if causes else ""

    def reason(self, run: Look) -> str:
        """Return why a run is worth a look."""
        if run.outcome in ("failed", "killed"):
            return f"{run.outcome} after {digits(run.hours)} {self.unit}"
        lost_hours = sum(hours or 0.0 for hours in run.lost.values())
        return f"{share(lost_hours / run.hours) if run.hours else '?'} lost, mostly to {self.worst(run).lower()}"

    def name(self, commit: str) -> str:
        """Return a commit hash shortened; other names unchanged."""
        return commit[:10] if len(commit) in (40, 64) and commit.isalnum() else commit


def as_json(fleet: Fleet) -> str:
    """Return fleet.json, for scripts: the content of the page, with no more rows than it has. It is ASCII."""
    document = {
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
        "regressions": [_slower(slower) for slower in fleet.regressions],
        "slow_hosts": [_slower(slower) for slower in fleet.slow_hosts],
        "look": [asdict(run) for run in fleet.look],
        "not_complete": [
            {"folder": folder, "status": status, "why": reason} for folder, status, reason in fleet.unread
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


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
