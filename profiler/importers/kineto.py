"""A trace that torch.profiler wrote, wherever it did: Chrome's JSON with Kineto's categories, packed or not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.errors import ProfilerError
from profiler.importers.columns import Builder, Collective, Columns
from profiler.importers.stream import NO_TRACE, Stream


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, as the trace describes it."""

    number: int
    name: str
    capability: tuple[int, int] | None
    memory: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One file: the ranges of one process, its rank."""

    path: Path
    ranges: Columns
    names: tuple[str, ...]
    threads: tuple[tuple[object, object], ...]
    streams: tuple[tuple[object, object], ...]
    """Of GPU work: its process (a device's number) and stream."""
    collectives: tuple[Collective, ...]
    inputs: tuple[tuple[bytes, bytes], ...]
    """JSON of the shapes and of the types of an operator's arguments."""
    events: int
    """In the file, those of which nothing is kept too."""
    rank: int | None
    world_size: int | None
    backend: str | None
    devices: tuple[Device, ...]
    problems: tuple[str, ...]
    """What could not be read, in sentences."""


def read(path: Path) -> Trace:
    """The trace at `path`, or of one that is cut off what there is of it.

    Raises:
        ProfilerError: the file cannot be read, is no trace, or holds nothing that can be analysed.
    """
    stream, builder = Stream(path), Builder()
    for events in stream:
        builder.add(events)
    ranges = builder.columns()
    if not len(ranges):
        if stream.cut_off:
            raise ProfilerError(
                f"Nothing can be read of the trace {path}: {stream.cut_off}.",
                "Copy it again from where it was made, or record it again.",
            )
        raise ProfilerError(f"{path} holds no ranges of a torch.profiler trace.", NO_TRACE)
    about = stream.about
    distributed = _mapping(about.get("distributedInfo"))
    return Trace(
        path=path,
        ranges=ranges,
        names=tuple(builder.names),
        threads=tuple(builder.threads),
        streams=tuple(builder.streams),
        collectives=tuple(builder.collectives),
        inputs=tuple(builder.inputs),
        events=builder.seen,
        rank=_rank(distributed, path),
        world_size=_whole(distributed.get("world_size")),
        backend=_text(distributed.get("backend")),
        devices=tuple(_devices(about.get("deviceProperties"))),
        problems=tuple(_problems(stream, len(ranges))),
    )


def _problems(stream: Stream, kept: int) -> list[str]:
    told = []
    if stream.cut_off:
        told.append(
            f"The trace {stream.path.name} is not whole: {stream.cut_off}. This is about the {kept:,} ranges before."
        )
    if stream.unreadable:
        told.append(f"{stream.unreadable:,} events of {stream.path.name} are no valid JSON and were left out.")
    return told


_IN_NAME = re.compile(r"rank[-_. ]?(\d+)", re.IGNORECASE)


def _rank(distributed: Mapping[str, Any], path: Path) -> int | None:
    """As the trace says, else as the file is named."""
    told = _whole(distributed.get("rank"))
    if told is not None:
        return told
    named = _IN_NAME.findall(path.name)
    return int(named[-1][:9]) if named else None


def _devices(properties: object) -> list[Device]:
    found = []
    for each in properties if isinstance(properties, list) else []:
        told = _mapping(each)
        number, memory = _whole(told.get("id")), _whole(told.get("totalGlobalMem"))
        major, minor = _whole(told.get("computeMajor")), _whole(told.get("computeMinor"))
        name = _text(told.get("name"))
        if number is not None and memory and name:
            capability = (major, minor) if major is not None and minor is not None else None
            found.append(Device(number, name, capability, memory))
    return found


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _whole(found: object) -> int | None:
    """Of a number or its digits, below 2**53."""
    if isinstance(found, str) and found.isdecimal() and len(found) < 16:
        return int(found)
    return found if type(found) is int and 0 <= found < 1 << 53 else None


def _text(found: object) -> str | None:
    return found if isinstance(found, str) and found else None
