"""Limit what is read of a job with many ranks: one rank in full, and enough of the others to compare ranks.

A node's file is bounded, but the number of nodes is not: a thousand ranks hold ten million rows. Steps are read in
stretches that are the same on every rank, so that steps of the same number can still be compared; samples are read in
stretches of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from profiler import schema


@dataclass(frozen=True, slots=True)
class Stretches:
    """The first `length` of every `period`, in step indexes or in seconds."""

    period: int
    length: int

    @classmethod
    def over(cls, end: float, share: float, apart: float) -> Stretches:
        """Return at most MOST_STRETCHES stretches up to `end` that cover a share (0 to 1) of it in total.

        `apart` is the distance between rows; each stretch is long enough to contain some.
        """
        period = max(1, round(end / MOST_STRETCHES), round(ROWS_A_STRETCH * apart / share))
        return cls(period, max(1, round(share * period)))

    def number(self, at: int) -> int | None:
        """Return the number of the stretch that contains `at`; None if none does."""
        number, offset = divmod(at, self.period)
        return number if offset < self.length else None

    def hold(self, column: str) -> str:
        """Return the condition in SQL."""
        return f'"{column}" % {self.period} < {self.length}'


MOST_STRETCHES = 32
"""Maximum number of stretches: 32 resolve a run's time to 3 %."""
ROWS_A_STRETCH = 2
"""Minimum mean number of rows in a stretch, because rows begin earlier or later on each rank."""


OF_PROCESSES = (
    *(schema.Batch, schema.Sketch, schema.Stack, schema.MemorySample),
    *(schema.Window, schema.Kernel, schema.Operator, schema.Sync),
)
"""Tables whose rows belong to a process, apart from its steps."""

Conditions = Mapping[type, str]
"""SQL conditions on the rows to read, by table; a table without one is read completely."""


def thin(whole: Set[int], steps: Stretches, samples: Stretches, since: float) -> Conditions:
    """Return the conditions for one node of many: processes in `whole` are read completely, others in stretches.

    After `since`, all GPU samples are read, to show a run in progress.
    """
    condition = f"pid IN ({', '.join(map(str, sorted(whole)))})" if whole else "0"
    return {
        **dict.fromkeys(OF_PROCESSES, condition),
        schema.Step: f"{condition} OR {steps.hold('index')}",
        schema.GpuSample: f"{samples.hold('time')} OR time > {since!r}",
        # Host samples describe a machine; only the machine of the `whole` processes is reported.
        schema.HostSample: "1" if whole else "0",
    }


def newest_rows(pid: int, since: float, rows: int) -> Conditions:
    """Return the conditions on the steps of one process and the GPU samples that begin after `since`.

    Both are read repeatedly during a run. At most the last `rows` of a table are read, so a long run takes no longer.
    """
    last_rows = "rowid > (SELECT rowid FROM {} ORDER BY rowid DESC LIMIT 1) - {}"
    return {
        **dict.fromkeys((*OF_PROCESSES, schema.HostSample, schema.Problem), "0"),
        schema.Step: f"{last_rows.format('steps', rows)} AND pid = {pid} AND start > {since!r}",
        schema.GpuSample: f"{last_rows.format('gpu_samples', rows)} AND time > {since!r}",
    }
