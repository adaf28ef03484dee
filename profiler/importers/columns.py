"""The ranges of a trace as columns: numbers in arrays, each distinct text stored once."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import compress, repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from profiler.importers.intervals import Integers, Intervals, Mask
from profiler.importers.stream import Arguments, Range

OPERATOR, ANNOTATION, MODULE, CALL, KERNEL, COPY, FILL = range(7)
"""Categories of a range: host operator, named host range, module's call, call into the GPU's runtime, GPU work."""

MODULE_PREFIX = "nn.Module: "
"""Prefix that torch.profiler gives the Python range of a module call; no other Python ranges are kept."""

_SETTINGS = re.compile("conv|attention|index_select|embedding")
"""Operators whose work depends on the values of their arguments; for others, only shapes and types are kept."""

_ANNOTATED = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)#|Optimizer\.(step|zero_grad)#")
"""Annotations that torch makes itself; until 1.11 it wrote them as operators."""

LARGEST = 1 << 63
"""Smallest invalid correlation number: some tools write -1 as an unsigned number."""
LONGEST = 1e15
"""Largest distance of any time from the first, in microseconds: thirty years."""

CATEGORIES = {
    "cpu_op": OPERATOR,
    "user_annotation": ANNOTATION,
    "python_function": MODULE,
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
"""Category by Kineto's name. Annotations that are repeated on the GPU are not kept."""


@dataclass(frozen=True, slots=True)
class EventColumns(Intervals):
    """The columns of a trace, one row per range; times are whole nanoseconds from the start of the first."""

    category: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    """Index into the trace's names; the other index columns refer to their own tables in the same way."""
    thread: npt.NDArray[np.int32]
    stream: npt.NDArray[np.int32]
    """Stream of GPU work; -1 on the host."""
    correlation: Integers
    """Correlation number; -1 if there is none."""
    collective: npt.NDArray[np.int32]
    """Description of the collective, if its kernel has one; else -1."""
    inputs: npt.NDArray[np.int32]
    """Shapes, types and values of an operator's arguments; -1 if they were not recorded."""
    sequence: Integers
    """Number that links the forward and backward pass of an operator; -1 if there is none."""
    blocks: npt.NDArray[np.float32]
    """Blocks of a kernel per multiprocessor; NaN if the trace does not show it."""


class Collective(NamedTuple):
    """A collective as its kernel describes itself, in Kineto's terms."""

    collective: str
    """Its kind."""
    group_name: str
    group_about: str
    """The purpose of the group."""
    group_size: int
    elements_in: int
    elements_out: int
    dtype: str


_DESCRIPTION = attrgetter(*Collective._fields)
"""Getter of the kernel arguments that make up a `Collective`."""


class Numbers(dict[Any, int]):
    """A mapping that numbers things in the order in which they are first requested."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = number = len(self)
        return number


@lru_cache(maxsize=4096)
def _has_settings(operator: str) -> bool:
    """Return whether the values of an operator's arguments are kept."""
    return _SETTINGS.search(operator) is not None


class Builder:
    """A builder of columns from events, batch by batch."""

    def __init__(self) -> None:
        self.names, self.threads, self.streams, self.collectives, self.inputs = (Numbers() for _ in range(5))
        self.seen = 0
        """Number of events of any kind."""
        self.delaying = 0
        """Number of events whose recording cost host time."""
        self._origin: float | None = None
        self._pieces: list[EventColumns] = []

    def add(self, events: list[Any]) -> None:
        """Add the events of kept categories that have an end."""
        self.seen += len(events)
        # C functions in `map`: a Python loop over every value would take longer than the parser.
        categories = map(CATEGORIES.get, map(attrgetter("cat"), events), repeat(-1))
        category = np.fromiter(categories, np.int8, len(events))
        self.delaying += int(((category >= 0) & (category <= CALL)).sum())
        functions = np.flatnonzero(category == MODULE)
        category[[row for row in functions.tolist() if not events[row].name.startswith(MODULE_PREFIX)]] = -1
        mask = category >= 0
        ranges: list[Range] = list(compress(events, mask.tobytes()))
        category = category[mask]
        durations = np.fromiter(map(attrgetter("dur"), ranges), np.float64, len(ranges))
        if not (ended := durations >= 0).all():
            ranges, category, durations = list(compress(ranges, ended.tobytes())), category[ended], durations[ended]
        if not ranges:
            return
        number = len(ranges)
        start = np.fromiter(map(attrgetter("ts"), ranges), np.float64, number)
        if self._origin is None:
            self._origin = float(np.floor(start[0]))
        begin = _nanoseconds(start - self._origin)
        piece = EventColumns(
            start=begin,
            end=begin + _nanoseconds(durations),
            category=category,
            name=np.fromiter(map(self.names.__getitem__, map(attrgetter("name"), ranges)), np.int32, number),
            thread=np.fromiter(map(self.threads.__getitem__, map(attrgetter("pid", "tid"), ranges)), np.int32, number),
            stream=np.full(number, -1, np.int32),
            correlation=np.full(number, -1, np.int64),
            collective=np.full(number, -1, np.int32),
            inputs=np.full(number, -1, np.int32),
            sequence=np.full(number, -1, np.int64),
            blocks=np.full(number, np.nan, np.float32),
        )
        calls, args = self._arguments(ranges, category >= CALL)
        piece.correlation[calls] = [arg.correlation if arg.correlation < LARGEST else -1 for arg in args]
        work, args = self._arguments(ranges, category >= KERNEL)
        piece.stream[work] = [
            self.streams[ranges[row].pid, ranges[row].tid if arg.stream == -1 else arg.stream]
            for row, arg in zip(work.tolist(), args, strict=True)
        ]
        piece.blocks[work] = [arg.blocks if type(arg.blocks) in (int, float) else np.nan for arg in args]
        piece.collective[work] = [
            self.collectives[Collective(*_DESCRIPTION(arg))] if arg.collective else -1 for arg in args
        ]
        operators, args = self._arguments(ranges, category == OPERATOR)
        piece.sequence[operators] = [
            arg.sequence if type(arg.sequence) is int and 0 <= arg.sequence < LARGEST else -1 for arg in args
        ]
        piece.inputs[operators] = [
            self.inputs[
                bytes(arg.dims), bytes(arg.types), bytes(arg.values) if _has_settings(ranges[row].name) else b""
            ]
            if arg.dims
            else -1
            for row, arg in zip(operators.tolist(), args, strict=True)
        ]
        if open_rows := [row for row, arg in zip(operators.tolist(), args, strict=True) if arg.finished is False]:
            piece = piece.where(np.delete(np.arange(number), open_rows))
        self._pieces.append(piece)

    @staticmethod
    def _arguments(kept: list[Range], chosen: Mask) -> tuple[Integers, list[Arguments]]:
        """Return the positions of the chosen ranges, and their arguments."""
        return np.flatnonzero(chosen), [event.args or _NOTHING for event in compress(kept, chosen.tobytes())]

    def columns(self) -> EventColumns:
        """Return everything added, sorted by start; if ranges have the same start, the longer comes first."""
        if not self._pieces:
            empty: Any = np.empty(0, np.int64)
            return EventColumns(*(empty for _ in fields(EventColumns)))
        pieces = (piece.columns().values() for piece in self._pieces)
        columns = EventColumns(*map(np.concatenate, zip(*pieces, strict=True)))
        self._pieces.clear()
        is_annotation = np.fromiter((_ANNOTATED.match(name) is not None for name in self.names), bool, len(self.names))
        columns.category[(columns.category == OPERATOR) & is_annotation[columns.name]] = ANNOTATION
        origin = columns.start.min()
        columns.start[:] -= origin
        columns.end[:] -= origin
        return columns.where(np.lexsort((-columns.end, columns.start)))


_NOTHING = Arguments()


def _nanoseconds(microseconds: npt.NDArray[np.float64]) -> Integers:
    return np.rint(np.clip(microseconds, -LONGEST, LONGEST) * 1e3).astype(np.int64)
