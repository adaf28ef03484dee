"""Limit what is read of a job of many ranks: one rank in full, of the others enough to compare ranks.

A node's file is bounded, but the number of nodes is not: a thousand ranks hold ten million rows. Steps are read in
stretches that are the same on every rank, so that steps of the same number can still be compared; samples are read in
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
    Stack,
    Step,
    Sync,
    Window,
)


@dataclass(frozen=True, slots=True)
class Stretches:
    """The first `length` of every `period`, in step indexes or in seconds."""

    period: int
    length: int

    @classmethod
    def over(cls, end: float, share: float, apart: float) -> Stretches:
        """Return at most MOST_STRETCHES stretches up to `end` that cover a share (0 to 1) of it in total.

        Rows lie `apart`, and each stretch is made to contain some.
        """
        period = max(1, round(end / MOST_STRETCHES), round(ROWS_A_STRETCH * apart / share))
        return cls(period, max(1, round(share * period)))

    def number(self, at: int) -> int | None:
        """Return the number of the stretch that contains `at`; None if none does."""
        number, within = divmod(at, self.period)
        return number if within < self.length else None

    def hold(self, column: str) -> str:
        """Return the condition in SQL."""
        return f'"{column}" % {self.period} < {self.length}'


MOST_STRETCHES = 32
"""Maximum number of stretches: 32 resolve a run's time to 3 %."""
ROWS_A_STRETCH = 2
"""Minimum average rows in a stretch, because rows begin earlier or later on each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thin:
    """The part of one node that is read."""

    whole: Set[int]
    """Processes that are read completely."""
    steps: Stretches
    samples: Stretches
    since: float
    """Time from which on all samples are read, to show a run in progress."""

    @property
    def conditions(self) -> dict[type, str]:
        """Return the SQL conditions by table; a table without one is read completely."""
        whole = f"pid IN ({', '.join(map(str, sorted(self.whole)))})" if self.whole else "0"
        samples = f"{self.samples.hold('time')} OR time > {self.since!r}"
        return {
            **dict.fromkeys((Batch, Window, Kernel, Operator, Sync, Sketch, Stack, MemorySample), whole),
            Step: f"{whole} OR {self.steps.hold('index')}",
            GpuSample: samples,
            # They are of the machine, and what is said of one is said of that of the whole processes.
            HostSample: "1" if self.whole else "0",
        }


@dataclass(frozen=True, slots=True)
class Newest:
    """The part of one process that is read repeatedly during a run: new steps and new GPU samples."""

    pid: int
    since: float
    """Time on the run clock; only rows that begin later are read."""
    rows: int
    """Maximum rows per table, from its end, so that reading a long run takes no longer."""

    @property
    def conditions(self) -> dict[type, str]:
        """Return the SQL conditions by table, as in `Thin`."""
        return {
            **dict.fromkeys(
                (Batch, HostSample, Kernel, MemorySample, Operator, Problem, Sketch, Stack, Sync, Window), "0"
            ),
            Step: f"{self._last('steps')} AND pid = {self.pid} AND start > {self.since!r}",
            GpuSample: f"{self._last('gpu_samples')} AND time > {self.since!r}",
        }

    def _last(self, table: str) -> str:
        return f"rowid > (SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT 1) - {self.rows}"
