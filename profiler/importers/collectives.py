"""Communication between ranks: collectives by kind and group, their bytes, and waiting times."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from profiler.grouping import grouped
from profiler.importers.arithmetic import SIZES
from profiler.importers.kineto import Trace
from profiler.importers.work import COMMUNICATION, COMPUTE, GpuWork
from profiler.schema import Exchange

_IN_NAME = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|reduce", re.IGNORECASE
)


class Key(NamedTuple):
    """The key by which collectives are grouped."""

    name: str
    """Kind of collective in lower case without underscores.

    Examples: allreduce, allgather, reducescatter, alltoall, sendrecv, broadcast.
    """
    group: str
    """Torch's description of the group of ranks; "" if the trace has none."""
    ranks: int | None
    dtype: str


class Collectives(NamedTuple):
    """All collectives of one key between two moments; times are nanoseconds."""

    key: Key
    durations: tuple[int, ...]
    """Duration of each collective, in order."""
    exposed: int
    """Time in which nothing was computed."""
    bytes: int | None
    """Bytes of the larger side of each collective, summed; None if unknown."""

    @property
    def total(self) -> int:
        """Return the sum of the durations; overlaps count more than once."""
        return sum(self.durations)

    def exchange(self, shortest: int | None) -> Exchange:
        """Return the `Exchange` to store.

        `shortest` is their total duration on the ranks that arrive last; None if that is unknown. Any time beyond it is
        waiting. The rates exclude waiting; they are the "algorithm bandwidth" and "bus bandwidth" of nccl-tests (see
        its PERFORMANCE.md).
        """
        seconds = (self.total if shortest is None else shortest) * 1e-9
        algorithm = self.bytes / seconds if self.bytes and seconds > 0 else None
        bandwidth = None
        if algorithm is not None and self.key.ranks:
            ring = (self.key.ranks - 1) / self.key.ranks
            share = {"allreduce": 2 * ring, "allgather": ring, "reducescatter": ring, "alltoall": ring}
            bandwidth = share.get(self.key.name, 1.0) * algorithm
        return Exchange(
            **self.key._asdict(),
            calls=len(self.durations),
            seconds=self.total * 1e-9,
            exposed=self.exposed * 1e-9,
            waited=None if shortest is None else (self.total - shortest) * 1e-9,
            bytes=self.bytes,
            algorithm=algorithm,
            bandwidth=bandwidth,
        )


def collectives(trace: Trace, work: GpuWork) -> tuple[Collectives, ...]:
    """Return the collectives in this work, by key; most time first."""
    communication = np.flatnonzero(work.kind == COMMUNICATION).tolist()
    by_key = grouped(communication, lambda row: _key(trace, int(work.collective[row]), int(work.name[row])))
    compute = work.spans(work.kind == COMPUTE)
    entries = []
    for key, rows in by_key.items():
        collective_work = work.where(np.array(rows))
        exposed = (collective_work.spans() - compute).total
        entries.append(
            Collectives(key, tuple(collective_work.length.tolist()), exposed, _bytes(trace, collective_work.collective))
        )
    return tuple(sorted(entries, key=lambda entry: (-entry.total, entry.key)))


def exchanges(ranks: Sequence[Sequence[Collectives]]) -> list[tuple[Exchange, ...]]:
    """Return the collectives of each rank, with waiting times if all ranks of a group ran the same number of them.

    A collective ends on all ranks at the same time, and only the last rank to arrive does not wait, so the shortest
    duration is the transfer time.
    """
    by_key = grouped(chain.from_iterable(ranks), lambda collective: collective.key)
    transfer_times = {
        key: sum(map(min, zip(*(collective.durations for collective in members), strict=True)))
        for key, members in by_key.items()
        if len(members) > 1
        and len(members) == key.ranks
        and len({len(collective.durations) for collective in members}) == 1
    }
    return [tuple(collective.exchange(transfer_times.get(collective.key)) for collective in rank) for rank in ranks]


def _key(trace: Trace, collective: int, name: int) -> Key:
    if collective < 0:
        match = _IN_NAME.search(trace.names[name])
        return Key(_plain(match[0]) if match else "other", "", trace.world_size, "")
    entry = trace.collectives[collective]
    return Key(_plain(entry.collective), entry.group_about or entry.group_name, entry.group_size or None, entry.dtype)


def _plain(name: str) -> str:
    """Return the kind of a collective: torch writes allreduce, _allgather_base, all_to_allv, ..."""
    bare = name.lower().replace("_", "")
    match = _IN_NAME.search(bare)
    return match[0] if match else bare[:40]


def _bytes(trace: Trace, numbers: npt.NDArray[np.int32]) -> int | None:
    total = 0
    for number, count in zip(*(column.tolist() for column in np.unique(numbers, return_counts=True)), strict=True):
        if number < 0:
            return None
        entry = trace.collectives[number]
        size = SIZES.get(entry.dtype.lower(), SIZES.get(f"c10::{entry.dtype}"))  # torch's own names for types
        if size is None:
            return None
        total += count * size * max(entry.elements_in, entry.elements_out)
    return total
