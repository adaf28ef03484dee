"""Compare the operators of two windows or traces: the time that each takes per step, and which kernels were exchanged.

An operator is matched by phase, call path, name, shapes and dtype. The rest is matched by fewer and fewer of these,
so that a cast, another batch size or a moved module does not hide the pair. Operators that only one side has, at a
place that both sides have, were exchanged, as when one operator replaces two.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from advisor.metrics.base import Metrics
from advisor.metrics.peaks import peak_rates
from advisor.report.operator_table import OperatorRow, OperatorTable, operator_table
from profiler.grouping import grouped

LEAST = 0.005
"""Share of the first side's GPU time from which a difference gets its own row."""
MOST = 30
"""Most rows; the others are summed up."""

# What must match, strictest first. Operators of one name may differ in their shapes, then in their place.
_KEYS: tuple[Callable[[OperatorRow], Hashable], ...] = (
    lambda row: (row.phase, row.path, row.name, row.inputs, row.dtype),
    lambda row: (row.phase, row.path, row.name, row.inputs),
    lambda row: (row.phase, row.path, row.name),
    lambda row: (row.phase, row.name, row.inputs),
    lambda row: (row.phase, row.path) if row.path else None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSide:
    """The operators of one side that were matched with the other side's, per step."""

    names: tuple[str, ...]
    """Most time first."""
    inputs: tuple[tuple[int, ...], ...]
    """Shapes of the first one's arguments."""
    kernel: str
    """The kernel of the first one that takes most time."""
    calls: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChange:
    """An operator of both sides, or of one; None: not in that side's table."""

    path: tuple[str, ...]
    phase: str | None
    kind: str
    before: OperatorSide | None
    after: OperatorSide | None

    @property
    def difference(self) -> float:
        """Return by how many seconds per step the second side takes more."""
        return (self.after.seconds if self.after else 0.0) - (self.before.seconds if self.before else 0.0)

    @property
    def exchanged(self) -> bool:
        """Return whether another operator, or another kernel, does the work."""
        if self.before is None or self.after is None:
            return False
        return self.before.names != self.after.names or self.before.kernel != self.after.kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChanges:
    """The changes in the GPU's work, per step; the largest difference first."""

    before: float
    """Seconds of GPU work."""
    after: float
    gpus: tuple[str, str]
    steps: tuple[float, float]
    marked: bool
    """Whether both sides mark steps; else a whole trace counts as one."""
    rows: tuple[OperatorChange, ...]
    others: float
    """Sum of the differences without a row."""
    least: tuple[float | None, float | None]
    """Per side, seconds below which an operator may be missing from its table; None if the table is complete."""


def operator_changes(before: Metrics, after: Metrics) -> OperatorChanges | None:
    """Return what changed; None unless both sides have an operator table."""
    tables = [operator_table(metrics.profile, metrics.get(peak_rates)) for metrics in (before, after)]
    if tables[0] is None or tables[1] is None:
        return None
    return changes(tables[0], tables[1])


def changes(before: OperatorTable, after: OperatorTable) -> OperatorChanges:
    """Return what changed between two tables."""
    matches = sorted(_matched(before.rows, after.rows), key=lambda change: -abs(change.difference))
    rows = tuple(
        change for change in matches if abs(change.difference) >= LEAST * before.seconds or _new_kernel(change, before)
    )
    return OperatorChanges(
        before=before.seconds,
        after=after.seconds,
        gpus=(before.gpu, after.gpu),
        steps=(before.steps, after.steps),
        marked=before.marked and after.marked,
        rows=rows[:MOST],
        others=after.seconds - before.seconds - sum(change.difference for change in rows[:MOST]),
        least=(_least(before), _least(after)),
    )


def _new_kernel(change: OperatorChange, before: OperatorTable) -> bool:
    """Return whether the kernel of a significant operator changed, even if its time did not."""
    return change.exchanged and change.before is not None and change.before.seconds >= 2 * LEAST * before.seconds


def _least(table: OperatorTable) -> float | None:
    return min((row.seconds for row in table.rows), default=None) if table.rest else None


def _matched(before: Iterable[OperatorRow], after: Iterable[OperatorRow]) -> Iterable[OperatorChange]:
    left, right = list(before), list(after)
    for key in _KEYS:
        left_groups, right_groups = grouped(left, key), grouped(right, key)
        for shared_key in left_groups.keys() & right_groups.keys() - {None}:
            yield _change(left_groups.pop(shared_key), right_groups.pop(shared_key))
        left = [row for rows in left_groups.values() for row in rows]
        right = [row for rows in right_groups.values() for row in rows]
    for row in left:
        yield _change([row], [])
    for row in right:
        yield _change([], [row])


def _change(before: list[OperatorRow], after: list[OperatorRow]) -> OperatorChange:
    longest = max(after or before, key=lambda row: row.seconds)
    return OperatorChange(
        path=longest.path, phase=longest.phase, kind=longest.kind, before=_side(before), after=_side(after)
    )


def _side(rows: list[OperatorRow]) -> OperatorSide | None:
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: -row.seconds)
    return OperatorSide(
        names=tuple(dict.fromkeys(row.name for row in ordered)),
        inputs=ordered[0].inputs,
        kernel=ordered[0].kernel,
        calls=sum(row.calls for row in rows),
        seconds=sum(row.seconds for row in rows),
    )
