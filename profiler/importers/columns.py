"""The ranges of a trace as columns: numbers in arrays, texts once each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.importers.events import Arguments, Event

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OPERATOR, ANNOTATION, CALL, KERNEL, COPY, FILL = range(6)
"""What a range is: an operator or a named range of the host, a call into the GPU's runtime or driver, GPU work."""

CATEGORIES = {
    "cpu_op": OPERATOR,
    "user_annotation": ANNOTATION,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "hip_runtime": CALL,
    "hip_driver": CALL,
    "xpu_runtime": CALL,
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "gpu_memset": FILL,
    # torch 1.8 to 1.11
    "Operator": OPERATOR,
    "Runtime": CALL,
    "Kernel": KERNEL,
    "Memcpy": COPY,
    "Memset": FILL,
}
"""By Kineto's names. Ranges of Python functions, and annotations that are drawn again on the GPU, are not kept."""


@dataclass(frozen=True, slots=True)
class Columns:
    """One row a range. Times are whole nanoseconds from the begin of the first."""

    start: Integers
    end: Integers
    category: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    """Position in the trace's names; so are the others below in theirs."""
    thread: npt.NDArray[np.int32]
    stream: npt.NDArray[np.int32]
    """Of GPU work; -1 on the host."""
    correlation: Integers
    """-1 where there is none."""
    collective: npt.NDArray[np.int32]
    """Of a collective that tells what it is; else -1."""
    inputs: npt.NDArray[np.int32]
    """Shapes and types of an operator's arguments; -1 where they were not recorded."""

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: Mask | Integers) -> Columns:
        """These rows."""
        return Columns(*(getattr(self, each.name)[chosen] for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Collective:
    """What a kernel of a collective says of itself, in Kineto's words."""

    name: str
    group: str
    about: str
    """What the group is for."""
    ranks: int
    elements_in: int
    elements_out: int
    dtype: str


class Builder:
    """Columns out of events, piece by piece."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.threads: dict[Any, int] = {}
        self.streams: dict[Any, int] = {}
        self.collectives: dict[Any, int] = {}
        self.inputs: dict[tuple[bytes, bytes], int] = {}
        self.seen = 0
        """Ranges of any kind."""
        self._origin: float | None = None
        self._pieces: list[Columns] = []

    def add(self, events: list[Event]) -> None:
        """Take over what is kept of these."""
        ranges = [event for event in events if event.ph == "X"]
        self.seen += len(ranges)
        kept = [event for event in ranges if event.cat in CATEGORIES and event.dur >= 0]
        if not kept:
            return
        start = np.array([event.ts for event in kept])
        if self._origin is None:
            self._origin = float(np.floor(start[0]))
        category = np.array([CATEGORIES[event.cat] for event in kept], np.int8)
        begin = _nanoseconds(start - self._origin)
        names, threads, streams = self.names, self.threads, self.streams
        args = [event.args or _NOTHING for event in kept]
        self._pieces.append(
            Columns(
                start=begin,
                end=begin + _nanoseconds(np.array([event.dur for event in kept])),
                category=category,
                name=np.array([names.setdefault(event.name, len(names)) for event in kept], np.int32),
                thread=np.array([threads.setdefault((event.pid, event.tid), len(threads)) for event in kept], np.int32),
                stream=np.array(
                    [
                        streams.setdefault((event.pid, event.tid if a.stream == -1 else a.stream), len(streams))
                        if is_work
                        else -1
                        for event, a, is_work in zip(kept, args, (category >= KERNEL).tolist(), strict=True)
                    ],
                    np.int32,
                ),
                correlation=np.array([a.correlation for a in args], np.int64),
                collective=np.array([self._collective(a) if a.collective else -1 for a in args], np.int32),
                inputs=np.array([self._inputs(a) if a.dims else -1 for a in args], np.int32),
            )
        )

    def columns(self) -> Columns:
        """All that was added, by start, of two that begin together the longer first."""
        if not self._pieces:
            return _of([np.empty(0) for _ in _TYPES])
        whole = _of([np.concatenate([getattr(piece, each.name) for piece in self._pieces]) for each in fields(Columns)])
        self._pieces.clear()
        first = whole.start.min()
        whole.start[:] -= first
        whole.end[:] -= first
        return whole.where(np.lexsort((-whole.end, whole.start)))

    def _collective(self, args: Arguments) -> int:
        told = Collective(
            args.collective,
            args.group_name,
            args.group_about,
            args.group_size,
            args.elements_in,
            args.elements_out,
            args.dtype,
        )
        return self.collectives.setdefault(told, len(self.collectives))

    def _inputs(self, args: Arguments) -> int:
        return self.inputs.setdefault((bytes(args.dims), bytes(args.types)), len(self.inputs))


_NOTHING = Arguments()
_TYPES: tuple[Any, ...] = (np.int64, np.int64, np.int8, np.int32, np.int32, np.int32, np.int64, np.int32, np.int32)


def _of(arrays: list[npt.NDArray[Any]]) -> Columns:
    return Columns(*(array.astype(dtype, copy=False) for array, dtype in zip(arrays, _TYPES, strict=True)))


def _nanoseconds(microseconds: npt.NDArray[np.float64]) -> Integers:
    return np.rint(microseconds * 1e3).astype(np.int64)
