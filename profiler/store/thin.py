"""What is read of a job of many ranks: one of them in full, of the others as much as ranks are compared by.

A node's file is bounded, the number of nodes is not: a thousand ranks hold ten million rows. Steps are read in
stretches that are the same on every rank, so that a step still lies beside the step of the same number; samples in
stretches of the clock.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from profiler.schema import (
    Batch,
    GpuSample,
    HostSample,
    Kernel,
    MemorySample,
    Operator,
    Problem,
    Sketch,
    Step,
    Window,
)


@dataclass(frozen=True, slots=True)
class Stretches:
    """The first `length` of every `period`: of steps by their index, or of seconds."""

    period: int
    length: int

    @classmethod
    def over(cls, end: float, share: float, apart: float) -> Stretches:
        """MOST_STRETCHES of them at most up to `end`, a share (0 to 1) of it together; rows lie `apart`, so that each
        stretch has some."""
        period = max(1, round(end / MOST_STRETCHES), round(ROWS_A_STRETCH * apart / share))
        return cls(period, max(1, round(share * period)))

    def number(self, at: int) -> int | None:
        """Of the stretch that it lies in, if any."""
        number, within = divmod(at, self.period)
        return number if within < self.length else None

    def hold(self, column: str) -> str:
        """In SQL."""
        return f'"{column}" % {self.period} < {self.length}'


MOST_STRETCHES = 32
"""A run's time then is seen to 3 %."""
ROWS_A_STRETCH = 2
"""On average, at least: rows begin earlier or later on each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thin:
    """How little of one node is read."""

    whole: Set[int]
    """Processes of which everything is read."""
    steps: Stretches
    samples: Stretches
    since: float
    """Samples from then on are all read: they tell of a run that goes on."""

    @property
    def conditions(self) -> dict[type, str]:
        """By table, which of its rows, in SQL; all of a table that is not there."""
        whole = f"pid IN ({', '.join(map(str, sorted(self.whole)))})" if self.whole else "0"
        samples = f"{self.samples.hold('time')} OR time > {self.since!r}"
        return {
            **dict.fromkeys((Batch, Window, Kernel, Operator, Sketch, MemorySample), whole),
            Step: f"{whole} OR {self.steps.hold('index')}",
            GpuSample: samples,
            # They are of the machine, and what is said of one is said of that of the whole processes.
            HostSample: "1" if self.whole else "0",
        }


@dataclass(frozen=True, slots=True)
class Newest:
    """What is read of one process again and again while the run goes on: what is new of its steps and of the GPUs."""

    pid: int
    since: float
    """On the run clock: rows that begin later."""
    rows: int
    """At most, of each table: from its end, so that a long run takes no longer to be read."""

    @property
    def conditions(self) -> dict[type, str]:
        """As those of `Thin`."""
        return {
            **dict.fromkeys((Batch, HostSample, Kernel, MemorySample, Operator, Problem, Sketch, Window), "0"),
            Step: f"{self._last('steps')} AND pid = {self.pid} AND start > {self.since!r}",
            GpuSample: f"{self._last('gpu_samples')} AND time > {self.since!r}",
        }

    def _last(self, table: str) -> str:
        return f"rowid > (SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT 1) - {self.rows}"
