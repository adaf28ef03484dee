"""Read the tables of a run node by node, so that only one node's tables are in memory."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from advisor.runs.clocks import Clock
from advisor.runs.load import ranks_of
from advisor.runs.profile import Profile, Rank
from profiler.errors import ProfilerError
from profiler.schema import Process, Run
from profiler.store import Tables, find, read

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Node:
    """One node's recording, and the clock for its export."""

    run: Run
    tables: Tables
    clock: Clock
    """The node's clock, relative to the first node's."""

    @property
    def ranks(self) -> list[Rank]:
        """Return the training processes, ordered by rank."""
        return sorted(ranks_of(self.tables), key=lambda rank: (rank.process.rank, rank.process.started))


def nodes(folder: Path, profile: Profile) -> Iterator[Node]:
    """Yield the nodes that can be read; `profile` reports the others."""
    clocks = {identity(rank.process): rank.clock for rank in profile.ranks}
    for path in find(folder):
        try:
            tables = read(path)
        except ProfilerError:
            continue
        if tables.runs:
            node_clocks = (clocks[key] for key in map(identity, tables.processes) if key in clocks)
            yield Node(tables.runs[-1], tables, next(node_clocks, Clock()))


def identity(process: Process) -> tuple[int, int, float]:
    """Return the key that identifies a process among those of all nodes."""
    return process.rank, process.pid, process.started


def in_time(rows: Iterable[Row], times: Callable[[Row], Any]) -> list[Row]:
    """Return the rows with a finite time, in time order. Recordings are not trusted."""
    return sorted((row for row in rows if _finite(times(row))), key=times)


def _finite(times: float | tuple[float, ...]) -> bool:
    return all(map(math.isfinite, times if isinstance(times, tuple) else (times,)))
