"""Communication between ranks: collectives by kind and group, their bytes, and waiting times."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from profiler.importers.arithmetic import SIZES
from profiler.importers.intervals import Integers
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """All collectives of one key between two moments; times are nanoseconds."""

    key: Key
    durations: tuple[int, ...]
    """Duration of each collective, in order."""
    exposed: int
    """Time in which nothing was computed."""
    bytes: int | None
    """Bytes of the larger side of each collective, summed; None if unknown."""
    waited: int | None = None
    """Time this rank waited for ranks that came later, summed over the collectives.

    It is how much longer each one took than on the rank that came last. None unless the traces of all ranks of the
    group are available.
    """

    @property
    def total(self) -> int:
        """Return the sum of the durations; overlaps count more than once."""
        return sum(self.durations)

    @property
    def algorithm(self) -> float | None:
        """Return the bytes per second, without waiting time where that is known.

        It is the "algorithm bandwidth" of nccl-tests (see its PERFORMANCE.md). None if bytes or time are unknown.
        """
        seconds = (self.total - (self.waited or 0)) * 1e-9
        return self.bytes / seconds if self.bytes and seconds > 0 else None

    @property
    def bandwidth(self) -> float | None:
        """Return the bytes per second over the link of each rank, the "bus bandwidth" of nccl-tests.

        None if the number of ranks is unknown, too.
        """
        if self.algorithm is None or not self.key.ranks:
            return None
        ring = (self.key.ranks - 1) / self.key.ranks
        share = {"allreduce": 2 * ring, "allgather": ring, "reducescatter": ring, "alltoall": ring}
        return share.get(self.key.name, 1.0) * self.algorithm

    def exchange(self) -> Exchange:
        """Return them as a recording keeps them."""
        return Exchange(
            **self.key._asdict(),
            calls=len(self.durations),
            seconds=self.total * 1e-9,
            exposed=self.exposed * 1e-9,
            waited=None if self.waited is None else self.waited * 1e-9,
            bytes=self.bytes,
            algorithm=self.algorithm,
            bandwidth=self.bandwidth,
        )


def collectives(trace: Trace, work: GpuWork) -> tuple[Collectives, ...]:
    """Return the collectives in this work, by key; most time first."""
    rows = np.flatnonzero(work.kind == COMMUNICATION)
    by_key: dict[Key, list[int]] = defaultdict(list)
    for row in rows.tolist():
        by_key[_key(trace, int(work.collective[row]), int(work.name[row]))].append(row)
    computing = work.spans(work.kind == COMPUTE)
    found = []
    for key, those in by_key.items():
        mine = work.where(np.array(those))
        found.append(
            Collectives(
                key=key,
                durations=tuple(mine.length.tolist()),
                exposed=(mine.spans() - computing).total,
                bytes=_bytes(trace, mine.collective),
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.total, each.key)))


def waits(ranks: Sequence[Sequence[Collectives]]) -> list[tuple[Collectives, ...]]:
    """Return the collectives with `waited` set if all ranks of a group made equally many of them.

    A collective ends on all ranks together, and only the last rank to arrive does not wait, so the shortest duration is
    the transfer.
    """
    everywhere: dict[Key, list[Collectives]] = defaultdict(list)
    for rank in ranks:
        for each in rank:
            everywhere[each.key].append(each)
    shortest: Mapping[Key, Integers] = {
        key: np.array([each.durations for each in those]).min(axis=0)
        for key, those in everywhere.items()
        if len(those) > 1 and len(those) == key.ranks and len({len(each.durations) for each in those}) == 1
    }
    return [
        tuple(
            replace(each, waited=each.total - int(shortest[each.key].sum())) if each.key in shortest else each
            for each in rank
        )
        for rank in ranks
    ]


def _key(trace: Trace, collective: int, name: int) -> Key:
    if collective < 0:
        found = _IN_NAME.search(trace.names[name])
        return Key(_plain(found[0]) if found else "other", "", trace.world_size, "")
    said = trace.collectives[collective]
    return Key(_plain(said.collective), said.group_about or said.group_name, said.group_size or None, said.dtype)


def _plain(name: str) -> str:
    """Return the kind of a collective: torch writes allreduce, _allgather_base, all_to_allv, ..."""
    bare = name.lower().replace("_", "")
    found = _IN_NAME.search(bare)
    return found[0] if found else bare[:40]


def _bytes(trace: Trace, numbers: npt.NDArray[np.int32]) -> int | None:
    total = 0
    for number, count in zip(*(each.tolist() for each in np.unique(numbers, return_counts=True)), strict=True):
        if number < 0:
            return None
        said = trace.collectives[number]
        size = SIZES.get(said.dtype.lower(), SIZES.get(f"c10::{said.dtype}"))  # torch's own names for types
        if size is None:
            return None
        total += count * size * max(said.elements_in, said.elements_out)
    return total
