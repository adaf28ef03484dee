"""Merge neighboring rows, so that the recording of a run of any length stays bounded.

All old rows stand for the same number of originals, a power of two that doubles as the run grows. The whole run thus
has one resolution, and only the newest rows are not merged yet. Sums over the run (counts, and each `total` times
`count`) stay the same.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from profiler.schema import BETWEEN, PHASES, Batch, GpuSample, HostSample, MemorySample, Step
from profiler.store.values import hints, kind

Policy = Literal["same", "first", "last", "most", "sum", "or", "total", "mean"]

_SQL: dict[Policy, str] = {
    "same": "min({0})",
    "first": "min({0})",  # for values that only grow
    "last": "max({0})",  # for values that only grow
    "most": "max({0})",
    "sum": "sum({0})",
    "or": "bit_or({0})",
    # Seconds and counts per row: a missing value adds nothing to the total, so phases still add up to the duration.
    "total": "sum({0} * count) / sum(count)",
    # Levels: the mean over the rows that have a value.
    "mean": "sum({0} * count) / sum(count * ({0} IS NOT NULL))",
}


@dataclass(frozen=True)
class Merge:
    """The way to merge rows of a table.

    Only rows with the same `key` (`group` in SQL) are merged; `policies` says how, by column.
    """

    key: Callable[[Any], tuple[object, ...]]
    group: tuple[str, ...]
    policies: dict[str, Policy]


def _each(policy: Policy, *names: str) -> dict[str, Policy]:
    return dict.fromkeys(names, policy)


MERGES: dict[type, Merge] = {
    Step: Merge(
        lambda step: (step.pid, step.tags != 0),
        ("pid", "tags != 0"),
        _each("same", "pid")
        | _each("first", "index", "start")
        | _each("sum", "count")
        | _each("or", "tags")
        | _each("total", "duration", "micro_steps", "batches", *PHASES, *BETWEEN, "fetch_host", "fetches_empty")
        | _each("mean", "forwards", "queue_depth", "host_launch"),
    ),
    Batch: Merge(
        lambda batch: (batch.pid, batch.loader),
        ("pid", "loader"),
        _each("same", "pid", "loader")
        | _each("first", "start")
        | _each("sum", "count")
        | _each("total", "duration", "cpu", "collate", "samples")
        | _each("mean", "files"),
    ),
    GpuSample: Merge(
        lambda sample: (sample.gpu,),
        ("gpu",),
        _each("same", "gpu")
        | _each("last", "time", "energy")
        | _each("sum", "count")
        | _each("or", "throttle")
        | _each("most", "pcie_generation", "pcie_width")  # the link slows down when idle
        | _each("mean", "utilization", "memory_used", "process_memory", "power", "sm_clock", "memory_clock")
        | _each("mean", "temperature", "sm_active", "sm_occupancy", "tensor_active")
        | _each("mean", "dram_active"),
    ),
    HostSample: Merge(
        lambda sample: (),
        (),
        _each("last", "time")
        | _each("sum", "count")
        | _each("most", "processes")
        | _each("mean", "cpu", "cpu_workers", "rss", "read", "write", "machine_cpu", "steal")
        | _each("mean", "memory_available"),
    ),
    MemorySample: Merge(
        lambda sample: (sample.pid, sample.device),
        ("pid", "device"),
        _each("same", "pid", "device")
        | _each("last", "time")
        | _each("sum", "count")
        | _each("mean", "allocated", "reserved")
        | _each("most", "allocated_peak", "reserved_peak", "retries", "ooms"),
    ),
}


def prepare(connection: sqlite3.Connection) -> None:
    """Prepare a connection for `merge`."""
    connection.create_aggregate("bit_or", 1, _BitOr)  # type: ignore[arg-type]  # SQLite's values may be None
    connection.execute("PRAGMA temp_store = MEMORY")


def merge(
    connection: sqlite3.Connection, table: str, cls: type, limit: int, group: Sequence[object] | None = None
) -> None:
    """Reduce a table, or one group of it, to at most half of `limit` rows plus one per group.

    This takes one pass in SQL. For one group it covers only rows that stand for too few originals: in a long run, the
    newest. The caller must have a transaction open.
    """
    rule = MERGES[cls]
    condition = " AND ".join(f"({part}) = ?" for part in rule.group) if group else ""
    condition, values = (condition or "1"), tuple(group or ())
    (total,) = connection.execute(f"SELECT coalesce(sum(count), 0) FROM {table} WHERE {condition}", values).fetchone()
    span = 1
    while total > span * (limit // 2):
        span *= 2
    if group:
        condition += f" AND rowid >= (SELECT min(rowid) FROM {table} WHERE {condition} AND count < {span})"
        values *= 2
    columns = ", ".join(f'"{name}"' for name in rule.policies)
    expressions = ", ".join(f'{_expression(cls, name)} AS "{name}"' for name in rule.policies)
    groups = ", ".join(rule.group or ("1",))
    connection.execute(
        f"""CREATE TEMP TABLE merged AS SELECT min(id) AS id, {expressions} FROM (
            SELECT *, rowid AS id, dense_rank() OVER (ORDER BY {groups}) AS part,
                (sum(count) OVER (PARTITION BY {groups} ORDER BY rowid) - count) / {span} AS span
            FROM {table} WHERE {condition}) GROUP BY part, span""",
        values,
    )
    connection.execute(f"DELETE FROM {table} WHERE {condition}", values)
    connection.execute(f"INSERT INTO {table} (rowid, {columns}) SELECT id, {columns} FROM temp.merged ORDER BY id")
    connection.execute("DROP TABLE temp.merged")


def _expression(cls: type, name: str) -> str:
    policy = MERGES[cls].policies[name]
    if policy == "mean" and kind(hints(cls)[name]) is int:
        return f"CAST(round({_SQL[policy]}) AS INTEGER)".format(f'1.0 * "{name}"')
    return _SQL[policy].format(f'"{name}"')


class _BitOr:
    """A bitwise-or aggregate, which SQLite lacks."""

    def __init__(self) -> None:
        self._bits: int | None = None

    def step(self, bits: int | None) -> None:
        if bits is not None:
            self._bits = bits | (self._bits or 0)

    def finalize(self) -> int | None:
        return self._bits
