"""Measure what profile-train costs the program it watches.

    python benchmarks/overhead.py                steps of common lengths; about ten minutes
    python benchmarks/overhead.py --quick        a minute or two; too short to judge the small bars
    python benchmarks/overhead.py --all          the worst cases, 30 s runs and the peers too; at most 40 minutes
    python benchmarks/overhead.py --in-process   only the precise figure of what a step costs
    python benchmarks/overhead.py --case "50 us" only this loop; may be given again
    python benchmarks/overhead.py --stacks       only what sampling stacks adds, next to py-spy alone, pyinstrument and
                                                 Scalene where they are installed
    python benchmarks/overhead.py --aa           the plain run against itself: how noisy this machine is
    python benchmarks/overhead.py --peer PYTHON  peers as well: traceml-ai 0.5 and lightning, if they are installed in
                                                 the venv of this interpreter, and torch.profiler

There are three measurements. In one process, the agent is inserted and removed between blocks: this gives its precise
cost per step, and the cost of hooks that only read the clock (in_process.py, floor.py). In two processes, a plain and a
treated command take turns: this gives the full cost of a step, and what the recorder uses meanwhile (steps.py). Whole
runs, one after the other, give start, end and the budget (whole.py).

Figures are treated minus plain, as medians with 95 % bootstrap intervals. A bar is `ok` or `above` if the whole
interval is on that side of it, else `unclear`: take more --rounds, or a quieter machine.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import ways
from bench import Bench, Plan
from loops import ALONE, EVERYDAY, LOOPS
from rows import as_json, table

PLAN = Plan(rounds=4, turns=24, pairs=20, short=6)
QUICK = Plan(rounds=2, turns=8, watched=0.3, pairs=6, short=2)
ALL = Plan(rounds=3, turns=16, pairs=16, short=6, long=5)
PEERS = Plan(rounds=1, turns=12, watched=0.3, short=3)
ALL_PEERS = replace(PEERS, long=2)

QUICK_LOOPS = ("230 us", "1 ms", "10 ms")
PRECISE_LOOPS = ("230 us", "1 ms")

STACKS_LOOPS = ("1 ms", "10 ms")

ALL_MINUTES = 37
"""Minutes after which --all begins no other pair of runs; the longest takes two."""


def measure(bench, args):
    """Take the measurements, ours first: if the time runs out, peers are left out."""
    plan = ALL if args.all else QUICK if args.quick else PLAN
    plan = replace(plan, **{key: value for key in ("rounds", "turns", "pairs") if (value := getattr(args, key))})
    if args.in_process:
        for name in args.case or PRECISE_LOOPS:
            bench.in_process(LOOPS[name], plan)
        return
    loops = [LOOPS[name] for name in args.case or (LOOPS if args.all else QUICK_LOOPS if args.quick else EVERYDAY)]
    whole_runs = not args.case
    if args.stacks:
        for name in args.case or STACKS_LOOPS:
            bench.sampled(LOOPS[name], plan)
        for way in (ways.stacks(), *ways.samplers()):
            for loop in [LOOPS[name] for name in args.case or STACKS_LOOPS]:
                bench.step(way, loop, plan)
        return
    if args.aa:
        for loop in loops:
            bench.step(ways.plain_again(), loop, plan)
        return
    if whole_runs:
        for name in PRECISE_LOOPS[:1] if args.quick else PRECISE_LOOPS:
            bench.in_process(LOOPS[name], plan)
        bench.start_and_end(ways.profile_train(), plan)
    # Windows have a case of their own: taking turns doubles the elapsed time, and with it their budget.
    for loop in loops:
        bench.step(ways.profile_train("--no-report", "--no-windows"), loop, plan)
    if whole_runs:
        bench.step(ways.stacks(), LOOPS[STACKS_LOOPS[0]], plan)
    if whole_runs and plan.long:
        bench.long(ways.profile_train("--no-report"), plan)
    if args.all or args.peer:
        plan = ALL_PEERS if args.all else PEERS
        for peer in ways.peers(args.peer):
            if whole_runs:
                bench.start_and_end(peer, plan)
            for loop in loops:
                bench.step(peer, loop, plan)
            if whole_runs and plan.long:
                bench.long(peer, plan)


def machine():
    return {
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "load": os.getloadavg(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_true", help="two rounds of eight turns")
    how_much.add_argument("--all", action="store_true", help="every loop, 30 s runs, peers")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--in-process", action="store_true", help="only in one process, with and without the agent")
    what.add_argument("--stacks", action="store_true", help="only the cost of stack sampling and of other samplers")
    what.add_argument("--aa", action="store_true", help="the plain run against itself")
    parser.add_argument("--case", choices=LOOPS, action="append", help="only this loop")
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter of a venv with traceml-ai, lightning or both")
    parser.add_argument("--rounds", type=int, help="pairs of processes per loop")
    parser.add_argument("--turns", type=int, help="turns of each of two processes")
    parser.add_argument("--pairs", type=int, help="pairs of blocks per process, with and without the agent")
    parser.add_argument(
        "--minutes", type=float, help=f"minutes after which no measurement starts (--all: {ALL_MINUTES})"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to this file")
    args = parser.parse_args()
    if args.peer and not os.access(args.peer, os.X_OK):
        parser.error(f"{args.peer} cannot be run. Name the interpreter of a venv: --peer VENV/bin/python")
    if args.in_process and (crowd := set(args.case or ()) - set(ALONE)):
        parser.error(f"{', '.join(crowd)}: more than one process. Measure it without --in-process")

    before, began = machine(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        bench = Bench(Path(folder), began + 60 * (args.minutes or (ALL_MINUTES if args.all else float("inf"))))
        measure(bench, args)
    load = " to ".join(f"{each:.1f}" for each in (before["load"][0], os.getloadavg()[0]))
    print(f"on {os.cpu_count()} cores, load {load}; treated minus plain: median [95 % interval]")
    print(table(bench.rows))
    if args.json:
        result = {
            "command": sys.argv,
            "seconds": time.monotonic() - began,
            "machine": before,
            "load_after": os.getloadavg(),
            "rows": as_json(bench.rows),
        }
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
