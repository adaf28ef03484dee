"""Measure what a fleet costs: import of 10,000 runs, one more run, the page, and queries on 1,000,000 generated rows.

PYTHONPATH=.:tests/support python benchmarks/fleet.py [--runs 10000] [--rows 1000000] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import tempfile
import time
import uuid
from pathlib import Path

from fleet_made import DAY, FILLER, START, advised, copies, result, row

from advisor.fleet import queries
from advisor.fleet.columns import CAUSES, AdviceRow, RunRow
from advisor.fleet.dataset import import_runs, opened, write
from advisor.fleet.overview import overview
from advisor.fleet.read import Rows

RULES = ("data-workers-zero", "precision-bf16", "host-sync-item", "comm-overlap")


def timed(what, function):
    begin = time.perf_counter()
    found = function()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what:44} {time.perf_counter() - begin:8.2f} s   peak {peak:6.0f} MiB")
    return found


def owners(number, chance):
    script = chance.randrange(40)
    return {
        "started_at": START + DAY * chance.randrange(90),
        "host": f"node{chance.randrange(60)}",
        "project": f"project{script % 7}",
        "user": f"user{chance.randrange(25)}",
        "commit": f"{script * 4 + chance.randrange(4):040x}",
        "command": (f"train_{script}.py",),
    }


def made(number, chance):
    phases = {"data_wait": 0.4 * chance.random(), "communication": 0.2 * chance.random(), "forward": 0.4}
    advice = [advised(rule, 0.3 * chance.random(), 0.2 * chance.random()) for rule in RULES if chance.random() < 0.3]
    return result(step=0.1 * (1 + 0.1 * chance.random()), phases=phases, advice=advice, filler=FILLER)


def page(fleet):
    with opened(fleet, loaded=True) as connection:
        found = overview(connection, price=2.5)
    text = fleet.page(found, "profile-train fleet")
    fleet.as_json(found)
    return text


def folders(count, root):
    chance = random.Random(0)
    runs, results = (row(i, **owners(i, chance)) for i in range(count)), (made(i, chance) for i in range(count))
    timed(f"(making {count} run folders)", lambda: copies(root / "runs", runs, results))
    sizes = [path.stat().st_size for path in (root / "runs/000/run-000001").iterdir()]
    print("bytes of a run:", sizes)
    fleet = root / "fleet"
    print(timed("first import", lambda: import_runs(fleet, [str(root / "runs")])))
    print(timed("nothing new", lambda: import_runs(fleet, [str(root / "runs")])))
    copies(root / "more", [row(count, **owners(count, chance))], [made(count, chance)])
    print(timed("one more run, by its folder", lambda: import_runs(fleet, [str(root / "more")])))
    shutil.move(root / "more", root / "runs" / "more")
    print(timed("the same, among all folders", lambda: import_runs(fleet, [str(root / "runs")])))
    text = timed("page and JSON", lambda: page(fleet))
    (root / "fleet.html").write_text(text)
    print("bytes of the page:", len(text))


def rows(count, fleet, chance):
    for first in range(0, count, 100_000):
        import_id = uuid.uuid4().hex
        found = []
        for number in range(first, min(first + 100_000, count)):
            what = owners(number, chance)
            what["started_at"] = START + DAY * (first // 100_000 * 36 + chance.randrange(36))
            shared = {
                "run_id": f"{number:032x}",
                "import_id": import_id,
                "day": time.strftime("%Y-%m-%d", time.gmtime(what["started_at"])),
                "project": what["project"],
                "script": what["command"][0],
            }
            hours = {"started": what["started_at"], "gpu_hours": 8.0}
            run = RunRow(
                **shared,
                **hours,
                imported_at=START,
                folder=f"s3://runs/{number}",
                fingerprint=f"{number:024x}",
                status="complete",
                outcome="failed" if number % 20 == 0 else "completed",
                commit_id=what["commit"],
                user_name=what["user"],
                host=what["host"],
                work=what["command"][0],
                step_p50_s=0.1 * (1 + 0.1 * chance.random()),
                plan_saves=0.2,
                **{f"lost_{cause}": 0.05 * chance.random() for cause in CAUSES},
            )
            advice = tuple(
                AdviceRow(**shared, **hours, rule=rule, title=rule, position=i, saves_alone=0.1, saves_in_plan=0.1)
                for i, rule in enumerate(RULES[: number % 4])
            )
            found.append(Rows(run, advice))
        write(fleet, import_id, found)


def million(count, root):
    fleet = root / "large"
    timed(f"(making {count} rows)", lambda: rows(count, fleet, random.Random(1)))
    asked = {"hours": "gpu_hours", "price": "2.5", "since": "", "most": 50, "fewest": 8, "each": 20, "column": "host"}
    begin = time.perf_counter()
    with opened(fleet, loaded=True) as connection:
        print(f"open and load: {time.perf_counter() - begin:.2f} s")
        for name in ("ALL", "BY", "STATUS", "UNREAD", "CHANGES", "PLANS", "COMPARABLE", "LOOK", "CELLS"):
            query = getattr(queries, name).format(**asked)
            timed(f"query {name}", lambda query=query: connection.execute(query).fetchall())
    timed("page and JSON", lambda: page(fleet))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        where = given.keep or Path(scratch)
        if given.runs:
            folders(given.runs, where)
        if given.rows:
            million(given.rows, where)
