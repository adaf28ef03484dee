"""The overview of a fleet: hours lost, by cause and by owner; changes, regressions, slow hosts, runs to look at."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from operator import itemgetter
from statistics import median
from typing import Any

from advisor.fleet import queries
from advisor.fleet.columns import CAUSES
from profiler.errors import ProfilerError
from profiler.grouping import grouped

MOST_ROWS = 50
"""Most rows of a table on the page."""
MOST_CELLS = 3000
"""Most cells that the page's filters add up: about 300 kB."""
MOST_WORKS = 300
MOST_WEEKS = 10_000
EACH = 20
"""Most runs compared for each commit and host, the newest ones."""

FEWEST_RUNS = 4
"""Fewest runs on each side of a comparison. Four are all slower than four others by chance once in 70 times."""
LEAST_CHANGE = 0.05
SPREADS = 3.0
"""Least difference, in standard deviations of single runs: with many scripts, large differences occur by chance."""
FEWEST_HOSTS = 3
"""With two hosts, it is unknown which one is unusual."""
MAD = 1.4826
"""Ratio of the standard deviation to the median absolute deviation, for normally distributed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPart:
    """Some of the fleet's runs; their hours are in `Fleet.unit`. None: not measured."""

    name: str | None = None
    runs: int
    hours: float
    money: float | None
    measured: float
    """Hours of the runs whose phases were measured: the base for shares of `lost`."""
    ended_badly: float
    """Hours of runs that failed or were killed; how much of that was useful is not known."""
    lost_money: float | None
    lost: Mapping[str, float | None]
    """Hours by cause."""

    @property
    def lost_hours(self) -> float:
        """Return the hours lost to all causes, which do not overlap."""
        return sum(hours or 0.0 for hours in self.lost.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """A change to a script."""

    project: str | None
    script: str
    rule: str
    title: str
    runs: int
    alone: float
    """Hours saved by it alone."""
    in_plan: float
    """Hours saved after the changes before it in each run's plan."""
    saves: float = 0.0
    """Hours that it adds to the changes chosen before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slower:
    """Step times of the same work, in seconds: `after` is slower than `before`."""

    project: str | None
    script: str
    host: str | None
    before_name: str
    after_name: str
    before: float
    after: float
    runs: tuple[int, int]
    day: str = ""

    @property
    def change(self) -> float:
        """Return the relative slowdown; 0.1 is 10 % slower."""
        return self.after / self.before - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A run worth a look."""

    folder: str
    project: str | None
    user: str | None
    script: str | None
    host: str | None
    started: float | None
    outcome: str | None
    hours: float
    lost: Mapping[str, float | None]
    """Hours by cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The content of the page and of fleet.json."""

    unit: str
    """GPU or CPU."""
    since: str
    total: FleetPart
    other: FleetPart | None
    """Runs whose hours are of the other unit."""
    status: Mapping[str, int]
    by: Mapping[str, Sequence[FleetPart]]
    """The largest parts by dimension."""
    weeks: Sequence[FleetPart]
    changes: Sequence[FleetChange]
    plan_hours: float
    """Hours that all advice together would have saved."""
    regressions: Sequence[Slower]
    slow_hosts: Sequence[Slower]
    look: Sequence[Look]
    unread: Sequence[tuple[str, str, str]]
    cells: Sequence[Mapping[str, Any]]


def overview(connection: Any, *, since: str = "", price: float | None = None, unit: str | None = None) -> Fleet:
    """Query the data set for the overview. If `unit` is not given, it is GPU if any run used one."""
    parameters = {"since": _date(since), "price": "NULL" if price is None else repr(float(price))}

    def ask(query: str, **more: Any) -> list[dict[str, Any]]:
        cursor = connection.execute(query.format(**{**parameters, **more}))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    units = {kind: part(ask(queries.ALL, hours=f"{kind.lower()}_hours")[0]) for kind in ("GPU", "CPU")}
    unit = unit or ("GPU" if units["GPU"].runs or not units["CPU"].runs else "CPU")
    other = units["CPU" if unit == "GPU" else "GPU"]
    parameters["hours"] = f"{unit.lower()}_hours"
    comparable_rows = ask(queries.COMPARABLE, fewest=2 * FEWEST_RUNS, most=MOST_WORKS, each=EACH)
    changes, plan_hours = choose(ask(queries.CHANGES), ask(queries.PLANS))
    cells = ask(queries.CELLS, most=MOST_CELLS)
    return Fleet(
        unit=unit,
        since=parameters["since"],
        total=units[unit],
        other=other if other.runs else None,
        status={row["status"]: row["runs"] for row in ask(queries.STATUS)},
        by={
            name: list(map(part, ask(queries.BY, column=column, most=MOST_ROWS)))
            for name, column in queries.DIMENSIONS.items()
        },
        weeks=sorted(
            map(part, ask(queries.BY, column=queries.WEEK, most=MOST_WEEKS)), key=lambda week: week.name or ""
        ),
        changes=changes,
        plan_hours=plan_hours,
        regressions=regressions(comparable_rows)[:MOST_ROWS],
        slow_hosts=slow_hosts(comparable_rows)[:MOST_ROWS],
        look=[_look(row) for row in ask(queries.LOOK, most=MOST_ROWS)],
        unread=[(row["folder"], row["status"], row["note"]) for row in ask(queries.UNREAD, most=MOST_ROWS)],
        cells=cells,
    )


def part(row: Mapping[str, Any]) -> FleetPart:
    """Return a row of sums as a FleetPart."""
    return FleetPart(
        name=row.get("name"),
        runs=row["runs"],
        hours=row["hours"] or 0.0,
        money=row["money"],
        measured=row["measured"] or 0.0,
        ended_badly=row["ended_badly"] or 0.0,
        lost_money=row["lost_money"],
        lost={cause: row[f"hours_{cause}"] for cause in CAUSES},
    )


def choose(
    advised: Iterable[Mapping[str, Any]], plans: Iterable[Mapping[str, Any]], most: int = 3
) -> tuple[list[FleetChange], float]:
    """Return the changes that together would save most hours, and the hours that all advice would save.

    Changes to one script claim the same idle time. Their combined saving is the sum of what each adds in its run's
    plan, or the best single saving if that is more; it is not the sum of the single savings, and never more than the
    saving of the script's whole plan.
    """
    ceilings = {(row["project"], row["script"]): row["hours"] or 0.0 for row in plans}
    candidates = [
        FleetChange(**{**row, "alone": row["alone"] or 0.0, "in_plan": row["in_plan"] or 0.0}) for row in advised
    ]
    changes = list[FleetChange]()
    while candidates and len(changes) < most:
        gains = [_added(change, changes, ceilings.get((change.project, change.script), 0.0)) for change in candidates]
        best = max(range(len(candidates)), key=lambda i: (gains[i], candidates[i].alone, candidates[i].rule))
        if gains[best] <= 0:
            break
        change = candidates.pop(best)
        changes.append(replace(change, saves=gains[best]))
    return changes, sum(ceilings.values())


def _added(one: FleetChange, chosen: Sequence[FleetChange], ceiling: float) -> float:
    before = [change for change in chosen if (change.project, change.script) == (one.project, one.script)]
    return _together([*before, one], ceiling) - _together(before, ceiling)


def _together(changes: Sequence[FleetChange], ceiling: float) -> float:
    alone = max((change.alone for change in changes), default=0.0)
    return min(ceiling, max(alone, sum(change.in_plan for change in changes)))


def regressions(rows: Sequence[Mapping[str, Any]]) -> list[Slower]:
    """Return the commits from which the same work is slower than with the commit before, on the same hosts."""
    slowdowns = list[Slower]()
    for runs in grouped(rows, itemgetter("work")).values():
        commits = grouped((row for row in runs if row["commit_id"]), itemgetter("commit_id"))
        ordered = sorted(commits.values(), key=lambda commit_rows: min(row["started"] for row in commit_rows))
        candidates = [commit_rows for commit_rows in ordered if len(commit_rows) >= FEWEST_RUNS]
        for before, after in pairwise(candidates):
            hosts = {row["host"] for row in before} & {row["host"] for row in after}
            sides = [[row for row in side if row["host"] in hosts] for side in (before, after)]
            if slower := _slower(sides[0], sides[1], (before[0]["commit_id"], after[0]["commit_id"])):
                slowdowns.append(slower)
    return sorted(slowdowns, key=lambda slowdown: -slowdown.change)


def slow_hosts(rows: Sequence[Mapping[str, Any]]) -> list[Slower]:
    """Return the hosts that are slower than every other host at the same work from the same commit.

    Without a commit, only runs of the same day are compared.
    """
    slowdowns: dict[str, Slower] = {}
    for runs in grouped(rows, lambda row: (row["work"], row["commit_id"] or row["day"])).values():
        by_host = grouped(runs, itemgetter("host"))
        hosts = {name: host_rows for name, host_rows in by_host.items() if name and len(host_rows) >= FEWEST_RUNS}
        if len(hosts) < FEWEST_HOSTS:
            continue
        middles = {name: median(row["step_p50_s"] for row in host_rows) for name, host_rows in hosts.items()}
        worst = max(middles, key=lambda name: middles[name])
        peers = [row for name, host_rows in hosts.items() if name != worst for row in host_rows]
        slower = _slower(peers, hosts[worst], names=(f"{len(hosts) - 1} other hosts", worst))
        if slower and (worst not in slowdowns or slowdowns[worst].change < slower.change):
            slowdowns[worst] = slower
    return sorted(slowdowns.values(), key=lambda slowdown: -slowdown.change)


def _slower(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], names: tuple[str, str]
) -> Slower | None:
    """Return the slowdown if it is clearly more than chance: every run is slower, and by far more than runs vary."""
    if min(len(before), len(after)) < FEWEST_RUNS:
        return None
    times = [[row["step_p50_s"] for row in side] for side in (before, after)]
    middles = [median(side) for side in times]
    spread = max(MAD * median(abs(time - middle) for time in side) for side, middle in zip(times, middles, strict=True))
    difference = middles[1] - middles[0]
    if min(times[1]) <= max(times[0]) or difference < max(LEAST_CHANGE * middles[0], SPREADS * spread):
        return None
    hosts = {row["host"] for row in after}
    return Slower(
        project=after[0]["project"],
        script=after[0]["script"],
        host=hosts.pop() if len(hosts) == 1 else None,
        before_name=names[0],
        after_name=names[1],
        before=middles[0],
        after=middles[1],
        runs=(len(before), len(after)),
        day=min(row["day"] for row in after),
    )


def _look(row: dict[str, Any]) -> Look:
    shares = {cause: row.pop(f"lost_{cause}") for cause in CAUSES}
    lost = {cause: None if share is None else share * row["hours"] for cause, share in shares.items()}
    return Look(user=row.pop("user_name"), **row, lost=lost)


def _date(text: str) -> str:
    """Return an ISO date for use in a query; "" is before all dates.

    Raises:
        ProfilerError: the text is not a date.
    """
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise ProfilerError(f"{text!r} is not a date.", "Write --since 2026-01-31.") from None
