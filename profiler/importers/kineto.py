"""Read a trace that torch.profiler wrote: Chrome's JSON with Kineto's categories, compressed or not."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profiler.errors import ProfilerError
from profiler.importers.columns import ANNOTATION, Builder, Collective, EventColumns
from profiler.importers.intervals import Mask
from profiler.importers.stream import NO_TRACE, Stream
from profiler.schema import MOST_RANKS, DeviceFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The contents of one trace file: the ranges of one process, which is one rank."""

    ranges: EventColumns
    names: tuple[str, ...]
    streams: tuple[tuple[object, object], ...]
    """Process (a device's number) and stream of GPU work."""
    collectives: tuple[Collective, ...]
    inputs: tuple[tuple[bytes, bytes, bytes], ...]
    """JSON of the shapes, the types and the values of an operator's arguments."""
    events: int
    """Number of events in the file, including those not kept."""
    delaying: int
    """Number of events whose recording cost host time: not GPU work, arrows or names."""
    rank: int | None
    world_size: int | None
    devices: tuple[DeviceFact, ...]
    cut_off: bool
    """Whether the file ends too early, or a part of it is damaged."""
    problems: tuple[str, ...]
    """Sentences about everything that could not be read."""

    def named(self, wanted: Callable[[str], bool]) -> Mask:
        """Return which ranges have a wanted name."""
        mask = np.fromiter(map(wanted, self.names), bool, len(self.names))
        return np.asarray(mask[self.ranges.name])

    def annotated(self, prefix: str | tuple[str, ...]) -> Mask:
        """Return which ranges are annotations whose name starts with `prefix`."""
        return np.asarray(self.named(lambda name: name.startswith(prefix)) & (self.ranges.category == ANNOTATION))


def read(path: Path) -> Trace:
    """Return the trace at `path`; of a truncated file, the part that can be read.

    Raises:
        ProfilerError: the file cannot be read, is not a trace, or holds nothing that can be analyzed.
    """
    stream, builder = Stream(path), Builder()
    for events in stream:
        builder.add(events)
    ranges = builder.columns()
    if not len(ranges):
        raise stream.nothing() or ProfilerError(f"{path} contains no ranges of a torch.profiler trace.", NO_TRACE)
    metadata = stream.about
    distributed = _mapping(metadata.get("distributedInfo"))
    return Trace(
        ranges=ranges,
        names=tuple(builder.names),
        streams=tuple(builder.streams),
        collectives=tuple(builder.collectives),
        inputs=tuple(builder.inputs),
        events=builder.seen,
        delaying=builder.delaying,
        rank=_rank(distributed, path),
        world_size=_number_of_ranks(distributed.get("world_size")),
        devices=tuple(_devices(metadata.get("deviceProperties"))),
        cut_off=bool(stream.cut_off),
        problems=tuple(_problems(stream, len(ranges))),
    )


def _problems(stream: Stream, kept: int) -> list[str]:
    problems = []
    if stream.cut_off:
        problems.append(
            f"The trace {stream.path.name} is incomplete: {stream.cut_off}. The report covers only the {kept:,} "
            "ranges before that point."
        )
    if stream.unreadable:
        problems.append(f"{stream.unreadable:,} events of {stream.path.name} are not valid JSON and were left out.")
    return problems


_IN_NAME = re.compile(r"rank[-_. ]?(\d+)", re.IGNORECASE)


def _rank(distributed: Mapping[str, Any], path: Path) -> int | None:
    """Return the rank that the trace states, else the one in the file's name."""
    rank = _whole(distributed.get("rank"))
    if rank is not None:
        return rank
    numbers = _IN_NAME.findall(path.name)
    return int(numbers[-1][:9]) if numbers else None


def _devices(properties: object) -> list[DeviceFact]:
    devices = []
    for entry in properties if isinstance(properties, list) else []:
        device = _mapping(entry)
        number, memory = _whole(device.get("id")), _whole(device.get("totalGlobalMem"))
        major, minor = _whole(device.get("computeMajor")), _whole(device.get("computeMinor"))
        name = _text(device.get("name"))
        if number is not None and memory and name:
            capability = (major, minor) if major is not None and minor is not None else None
            devices.append(DeviceFact(id=number, name=name, capability=capability, memory_total=memory))
    return devices


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _whole(found: object) -> int | None:
    """Return a whole number, given as a number or as digits, below 2**53; else None."""
    if isinstance(found, str) and found.isdecimal() and len(found) < 16:
        return int(found)
    return found if type(found) is int and 0 <= found < 1 << 53 else None


def _number_of_ranks(found: object) -> int | None:
    """Return the number of ranks; None if it is larger than any job has."""
    ranks = _whole(found)
    return ranks if ranks is not None and ranks <= MOST_RANKS else None


def _text(found: object) -> str | None:
    return found if isinstance(found, str) and found else None
