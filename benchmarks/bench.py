"""Take the measurements and keep their rows."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import bars
import sampling
import steps
import whole
from rows import missing, row

IN_PROCESS = Path(__file__).resolve().with_name("in_process.py")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How often each measurement is repeated."""

    rounds: int
    """Pairs of processes per case."""
    turns: int
    """Turns of each of two processes side by side."""
    watched: float = 1.0
    """Factor on the time for which a loop has the recorder watched."""
    pairs: int = 0
    """Pairs of blocks in each of `rounds` processes."""
    short: int = 0
    """Pairs of short whole runs."""
    long: int = 0
    """Pairs of 30 s runs."""


class Bench:
    """Measurements. Each method takes one and adds its figures to `rows`, or the reason why there are none."""

    def __init__(self, folder, until=float("inf")):
        """Keep temporary files in `folder`; begin nothing after the monotonic time `until`."""
        self.rows = []
        self._folder = folder
        self._until = until
        self._events = {}
        """Events per step of each loop under profile-train: they set the bar, for peers too."""

    def step(self, way, loop, plan):
        """Measure steps of a plain and a treated program side by side."""
        if self._cannot(way.name, loop.name, way.lacks(loop)):
            return
        watched = loop.watched * plan.watched
        found = self._repeat(
            plan.rounds, lambda number: steps.pair(way, loop, plan.turns, number, self._folder, watched)
        )
        for each in found:
            if each["events"]:
                self._events[loop.name] = each["events"][0]
        self.rows += steps.rows_of(way, loop, found, self._events.get(loop.name))

    def in_process(self, loop, plan):
        """Measure steps with and without profile-train's agent in one process."""
        name, case = "profile-train", f"{loop.name}, in one process"
        if self._cannot(name, case):
            return
        found = self._repeat(plan.rounds, lambda number: _in_process(loop, plan.pairs, number))
        bar = bars.cost(found[0]["events"])
        for way, of in (("treated", "step"), ("floor", "hooks that only read the clock")):
            for key, what in (("median", "median"), ("mean", "mean"), ("quiet", "CPU of quiet steps")):
                added = [[b[key] - a[key] for a, b in zip(one["plain"], one[way], strict=True)] for one in found]
                self.rows.append(row(name, case, f"{of}, {what}", added, "us", bar if way == "treated" else None))
        plain = [[block["median"] for block in one["plain"]] for one in found]
        self.rows.append(row(name, case, "step without the agent, median", plain, "us"))
        self.rows.append(row(name, case, "events a step", [[one["events"]] for one in found], ""))

    def sampled(self, loop, plan):
        """Measure steps with and without stack sampling in one process."""
        case = f"{loop.name}, in one process"
        if not self._cannot("stacks", case):
            found = self._repeat(plan.rounds, lambda _: sampling.ratios(loop, plan.turns, self._folder))
            self.rows += sampling.rows_of(loop, case, found)

    def start_and_end(self, way, plan):
        """Measure short whole runs."""
        why = way.lacks(whole.SHORT) or (None if way.starts else "it starts and ends inside the script")
        if self._cannot(way.name, whole.START_CASE, why):
            return
        self.rows += whole.start_rows(way, self._whole(way, whole.SHORT, whole.SHORT_SECONDS, plan.short))

    def long(self, way, plan):
        """Measure runs of 30 s."""
        if self._cannot(way.name, whole.LONG_CASE, way.lacks(whole.LONG)):
            return
        self.rows += whole.long_rows(way, self._whole(way, whole.LONG, whole.LONG_SECONDS, plan.long))

    def _whole(self, way, loop, seconds, rounds):
        count = whole.steps_for(seconds, way.baseline, loop, self._folder)
        return self._repeat(rounds, lambda number: whole.pair(way, loop, count, number, self._folder))

    def _cannot(self, name, case, why=None):
        """Return whether the case is not measured, and add a row that says why."""
        if why or self._time_is_up:
            why = f"not applicable: {why}" if why else "not measured: out of time"
            self.rows.append(missing(name, case, why))
            return True
        print(f"{time.strftime('%H:%M:%S')} {name}: {case} ", end="", file=sys.stderr, flush=True)
        return False

    @property
    def _time_is_up(self):
        return time.monotonic() > self._until

    def _repeat(self, rounds, measure):
        found = []
        for number in range(rounds):
            if found and self._time_is_up:
                break
            found.append(measure(number))
            print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return found


def _in_process(loop, pairs, seed):
    line = [sys.executable, IN_PROCESS, loop.name, "--pairs", pairs, "--seed", seed]
    done = subprocess.run(
        [str(word) for word in line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)
