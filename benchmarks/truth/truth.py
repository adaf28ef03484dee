"""Check that the first advice is right, on training runs for which it is known what is wrong with them.

    python benchmarks/truth/truth.py                 everything; at most 40 minutes on two cores
    python benchmarks/truth/truth.py --quick         some rows, once; at most 5 minutes
    python benchmarks/truth/truth.py --rows C01,HC*  these rows; "C01 gpt-*" for C01 on other models
    python benchmarks/truth/truth.py --peers FOLDER  others too, each in a venv in FOLDER; about 12 minutes more

Each row is a program in rows/ with one thing wrong with it, or with none (HC1 to HC6). It is recorded by
`profile-train`, and result.json is judged: the first advice above information must be the table's, and what the table
forbids must not be above information. Where the advice is right, it is followed with the numbers that it names, and
plain runs without and with the cure take turns: the share of the step time that the cure removed, by the program's own
clock, is compared with the interval that the advice predicted. Runs on GPUs are metrics (tests/support/gpu_truth.py)
that go through the advisor.

On a busy machine, steps may scatter so much that the advisor insists on nothing: it then holds its advice back to
information, and says so. Such a run is judged by the order of its advice, and marked; for a healthy row it is repeated
once.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

import checkout  # noqa: F401
import fixtures
import peers
import tables
from machine import cores, why_not
from recording import Failed, record, step_time
from scores import RowResult, bars
from seen import is_hit
from table import ROWS


@dataclass(frozen=True)
class Plan:
    sick: int
    """Recordings of a sick row."""
    healthy: int
    pairs: int
    """Pairs of plain runs, without the cure and with it."""
    minutes: float
    """Minutes after which nothing more begins."""
    everywhere: int | None = None
    """Recordings of every row, instead of the table's number."""


FULL = Plan(sick=2, healthy=5, pairs=3, minutes=38)
QUICK = Plan(sick=1, healthy=1, pairs=2, minutes=4.5)


class Bench:
    """Recordings and measurements of all rows: one of each per row, then more of each, cheap rows first. If the time
    runs out, what is missing matters least."""

    def __init__(self, rows, plan, folder):
        self._plan = plan
        self._folder = folder
        self._until = time.monotonic() + 60 * plan.minutes
        self.results = [RowResult(row, cores()) for row in rows]

    def run(self):
        for each in self.results:
            each.skipped = why_not(each.row)
            # One right after the other, because a shared machine may behave differently minutes later.
            self._record([each], 1)
            self._measure([each], 1)
        # Alarms in healthy runs are rare: many runs are needed to see one.
        plainly_healthy = [each for each in self._cheap_first() if each.row.healthy and each.row.model is None]
        for number in range(2, self._plan.healthy + 1):
            self._record(plainly_healthy, number)
        for number in range(2, self._plan.pairs + 1):
            self._measure(self._cheap_first(), number)
        for number in range(2, max(self._plan.sick, self._plan.healthy) + 1):
            self._record(self._cheap_first(), number)

    def _cheap_first(self):
        return sorted(self.results, key=lambda each: each.seconds)

    def _record(self, rows, number):
        """Take the recording with this number of every row that has fewer and needs it."""
        for each in rows:
            usual = self._plan.healthy if each.row.healthy else self._plan.sick
            wanted = self._plan.everywhere or each.row.repeats or usual
            if len(each.runs) < number <= wanted and not each.skipped:
                self._try(each, self._record_one)

    def _record_one(self, each):
        began = time.monotonic()
        seen = record(each.row, self._folder)
        each.seconds = time.monotonic() - began
        if each.row.healthy and seen.scattered and not each.row.uneven:
            each.again += 1
            seen = record(each.row, self._folder)
        each.runs.append(seen)
        came = seen.above if each.row.healthy else seen.order
        _note(f"{each.row.id}: {', '.join(came) or 'nothing'}{' (scattered)' if seen.scattered else ''}")

    def _measure(self, rows, number):
        """Measure the pair with this number of every row that has a prediction to compare it with."""
        for each in rows:
            if each.predicted is not None and each.row.measured and len(each.before) < number <= self._plan.pairs:
                self._try(each, self._pair)

    def _pair(self, each):
        cure = next(run.cure for run in each.runs if is_hit(each.row, run))
        turns = [(each.before, ()), (each.after, ("--fixed", *cure))]
        for times, words in turns if len(each.before) % 2 == 0 else turns[::-1]:
            times.append(step_time(each.row, words, self._folder))
        _note(f"{each.row.id}: {each.before[-1] * 1e3:.1f} ms, cured {each.after[-1] * 1e3:.1f} ms")

    def _try(self, each, work):
        if each.failed or time.monotonic() > self._until:
            return
        try:
            work(each)
        except (Failed, OSError, ValueError) as error:
            each.failed = f"{type(error).__name__}: {error}"
            _note(each.failed)


def _note(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def chosen(patterns, quick):
    """Return the rows whose ID matches one of the patterns; without patterns, the rows of the plan."""
    if patterns:
        wanted = [pattern.strip() for pattern in patterns.split(",")]
        return [row for row in ROWS if any(fnmatch(row.id, pattern) for pattern in wanted)]
    return [row for row in ROWS if row.quick or not quick]


def plan_of(args):
    plan = QUICK if args.quick else FULL
    return replace(
        plan,
        sick=args.repeats or plan.sick,
        healthy=args.repeats or plan.healthy,
        everywhere=args.repeats,
        pairs=plan.pairs if args.pairs is None else args.pairs,
        minutes=args.minutes or plan.minutes,
    )


def gpu_rows():
    try:
        return fixtures.results(cores())
    except ModuleNotFoundError as error:
        _note(f"GPU rows skipped: not all packages of the tests are installed ({error})")
        return []


def beside(venvs, results, folder):
    """Return our first recordings, and what other tools say about the same rows."""
    results = [each for each in results if each.row.model is None]
    rows = [(each.row, each.cores, each.skipped) for each in results]
    return [peers.Peer("profile-train", results), *peers.on(venvs, rows, folder, _note)]


def about(seconds, before):
    return {
        "command": sys.argv,
        "seconds": seconds,
        "cores": cores(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "load_before": before,
        "load_after": os.getloadavg(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="some rows, once")
    parser.add_argument("--rows", metavar="C01,HC*", help="only these rows")
    parser.add_argument("--repeats", type=int, metavar="N", help="recordings of every row")
    parser.add_argument("--pairs", type=int, metavar="N", help="pairs of plain runs, without and with the cure")
    parser.add_argument("--minutes", type=float, help="minutes after which nothing more starts")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="folder with one venv per tool in peers.py")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to this file, for the docs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to this file")
    args = parser.parse_args()
    plan = plan_of(args)
    rows = chosen(args.rows, args.quick)
    if not rows:
        parser.error(f"no row is called {args.rows}; there are {', '.join(row.id for row in ROWS)}")

    before, began = os.getloadavg(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="truth-") as folder:
        bench = Bench(rows, plan, Path(folder))
        bench.run()
        others = beside(args.peers, bench.results, Path(folder)) if args.peers else []
    gpu = [] if args.rows else gpu_rows()
    found = tables.Found(
        about(time.monotonic() - began, before), bench.results, bars(bench.results), gpu, bars(gpu)[:3], others
    )
    print(tables.text(found))
    if args.markdown:
        args.markdown.write_text(tables.markdown(found))
    if args.json:
        args.json.write_text(tables.as_json(found))
    sys.exit(any(each.failed for each in bench.results))


if __name__ == "__main__":
    main()
