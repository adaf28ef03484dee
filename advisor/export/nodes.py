"""The tables of a run, one node after the other: of many ranks, no more than a node's lie in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from advisor.clocks import Clock
from advisor.profile import Profile
from profiler.errors import ProfilerError
from profiler.schema import Process, Run
from profiler.store import Tables, find, owners, ranks, read

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Node:
    """One node's recording."""

    run: Run
    tables: Tables
    clock: Clock
    """Its own, against the first node's."""

    @property
    def ranks(self) -> list[Process]:
        """Training processes, by their numbers."""
        return sorted(ranks(self.tables), key=lambda one: (one.rank, one.started))

    def workers(self, rank: Process) -> list[Process]:
        """Those that work for it."""
        owner_of = owners(self.tables.processes, {one.pid for one in ranks(self.tables)})
        return [one for one in self.tables.processes if one.role == "worker" and owner_of.get(one.pid) == rank.pid]


def nodes(folder: Path, profile: Profile) -> Iterator[Node]:
    """Those that can be read; of the others, `profile` says that they cannot."""
    clocks = {identity(rank.process): rank.clock for rank in profile.ranks}
    for path in find(folder):
        try:
            tables = read(path)
        except ProfilerError:
            continue
        if tables.runs:
            known = (clocks[one] for one in map(identity, tables.processes) if one in clocks)
            yield Node(tables.runs[-1], tables, next(known, Clock()))


def identity(process: Process) -> tuple[int, int, float]:
    """What tells a process from those of all nodes."""
    return process.rank, process.pid, process.started


def in_time(rows: Iterable[Row], times: Callable[[Row], Any]) -> list[Row]:
    """Those that have a place in time, in its order: a recording may come from anybody."""
    return sorted((row for row in rows if _finite(times(row))), key=times)


def _finite(times: float | tuple[float, ...]) -> bool:
    return all(map(math.isfinite, times if isinstance(times, tuple) else (times,)))
