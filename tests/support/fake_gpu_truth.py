"""What a scene's GPU did, from the stand-in's own log and the program's timestamps, without the profiler."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate
from statistics import median

from fake_gpu import OnGpu
from fake_gpu_scenes import SETTLED

from advisor.metrics.step import steady

PHASES = {
    "data": ("fetch", "fetched"),
    "forward": ("forward", "forward end"),
    "backward": ("backward", "backward end"),
    "optimizer": ("optimizer", "optimizer end"),
}


OTHER_COPIES = ("d2h", "d2d", "h2h")
PAGEABLE = 7e9
"""Rate in bytes/s: no copy from pinned memory is slower, and none from pageable memory is faster."""


class Times:
    """A set of intervals, from pairs of nanoseconds."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []
        for begin, end in sorted(pairs):
            if self.ends and begin <= self.ends[-1]:
                self.ends[-1] = max(end, self.ends[-1])
            else:
                self.begins.append(begin)
                self.ends.append(end)
        lengths = (end - begin for begin, end in zip(self.begins, self.ends, strict=True))
        self._before = list(accumulate(lengths, initial=0))

    def __or__(self, other: Times) -> Times:
        return Times([*zip(self.begins, self.ends, strict=True), *zip(other.begins, other.ends, strict=True)])

    def until(self, moment: int) -> int:
        """Return how many nanoseconds of the set lie before this moment."""
        past = bisect_right(self.begins, moment)
        return self._before[past] - max(0, self.ends[past - 1] - moment if past else 0)


class Truth:
    """What one rank's GPU did, in seconds."""

    def __init__(self, run: OnGpu, rank: int = 0) -> None:
        self._run = run
        (stamps,) = run.truth.glob(f"{rank}-*.json")
        self.pid = int(stamps.stem.partition("-")[2])
        self._stamps = json.loads(stamps.read_text())
        ops = run.ops_of(self.pid)
        self.device = max(op.device for op in ops if "spin_kernel" in op.name)
        self.ops = [op for op in ops if op.device == self.device]

    @cached_property
    def _reached(self) -> tuple[list[int], list[int]]:
        ops = sorted(self.ops, key=lambda op: op.host)
        return [op.host for op in ops], list(accumulate((op.end for op in ops), max))

    def _at(self, host: int) -> int:
        """Return when the GPU reaches an event that is recorded at this moment: after everything submitted before."""
        hosts, ends = self._reached
        position = bisect_right(hosts, host)
        return max(host, ends[position - 1]) if position else host

    @cached_property
    def steps(self) -> list[dict[str, float]]:
        """Return the phases of each step, at its index; a step ends with its optimizer step. The first has no
        duration."""
        found, sums, last, begun = [], dict.fromkeys(PHASES, 0.0), None, {}
        for what, host in self._stamps:
            at = self._at(host)
            begun[what] = at
            for phase, (begin, end) in PHASES.items():
                if what == end:
                    sums[phase] += (at - begun[begin]) * 1e-9
            if what == "optimizer end":
                duration = (at - (last or at)) * 1e-9
                spent = {**sums, "duration": duration, "other": duration - sum(sums.values())}
                found.append(spent | {"begin": (last or at) * 1e-9, "end": at * 1e-9})
                last, sums = at, dict.fromkeys(PHASES, 0.0)
        return found

    def typical(self, phase: str) -> float:
        """Return the median of a phase over steady steps."""
        return median(step[phase] for step in self.steps[SETTLED:])

    @cached_property
    def _times(self) -> dict[str, Times]:
        compute, sent, copied = (self._of(kind) for kind in ("kernel", "collective", "copy"))
        pageable = self._of("copy", PAGEABLE)
        fetches = [host for what, host in self._stamps if what in PHASES["data"]]
        return {
            "compute": compute,
            "sent": sent,
            "busy": compute | sent,
            "with pageable": compute | sent | pageable,
            "active": compute | sent | copied,
            "explained": compute | sent | copied | Times(zip(fetches[::2], fetches[1::2], strict=True)),
        }

    def _of(self, kind: str, rate: float = math.inf) -> Times:
        ops = (
            op for op in self.ops if op.kind == kind and op.name not in OTHER_COPIES and op.bytes <= rate * op.seconds
        )
        return Times((op.start, op.end) for op in ops)

    def shares(self, begin: float, end: float) -> dict[str, float]:
        """Return seconds between two moments of the Unix clock: what the GPU did, and how much of its idle time was in
        fetches."""
        first, last = round(begin * 1e9), round(end * 1e9)
        spent = {name: (times.until(last) - times.until(first)) * 1e-9 for name, times in self._times.items()}
        return {
            "duration": end - begin,
            "busy": spent["busy"],
            "communication": spent["sent"],
            "communication_exposed": spent["busy"] - spent["compute"],
            "h2d": spent["active"] - spent["busy"],
            "h2d_pageable": spent["with pageable"] - spent["busy"],
            "idle_data": spent["explained"] - spent["active"],
            "idle": end - begin - spent["explained"],
        }

    @cached_property
    def steady(self) -> dict[str, float]:
        """Return `shares` of the mean of the steps that metrics use."""
        rows = [self.steps[step.index] for step in steady([each for each in self._run.steps if each.pid == self.pid])]
        sums: Counter[str] = Counter()
        for row in rows:
            sums.update(self.shares(row["begin"], row["end"]))
        return {name: seconds / len(rows) for name, seconds in sums.items()}

    @cached_property
    def span(self) -> tuple[float, float]:
        """Return the start of the first steady step and the end of the last step, on the Unix clock."""
        ends = [self._at(host) * 1e-9 for what, host in self._stamps if what == "optimizer end"]
        return ends[SETTLED], ends[-1]
