"""Export the sampled stacks for pprof: `go tool pprof`, and the viewers and stores that read its files.

Labels of each sample are its rank, its role (rank or worker) and its phase: `pprof -tagfocus=forward`.

The format: https://github.com/google/pprof/blob/main/proto/profile.proto. The few messages are encoded here.
"""

import gzip
from collections.abc import Iterable
from pathlib import Path

from advisor import atomic_write
from advisor.export.nodes import Node
from advisor.metrics.base import Metrics
from profiler.errors import ProfilerError


def write(_nodes: Iterable[Node], metrics: Metrics, path: Path) -> None:
    """Write the stacks of all ranks as a compressed profile.

    Raises:
        ProfilerError: no stacks were sampled, or the file could not be written.
    """
    profile = metrics.profile
    rows = [(rank.process.rank, row) for rank in profile.ranks for row in rank.stacks]
    if not rows:
        raise ProfilerError("No Python stacks were sampled in this run.", "Record it again, without --no-stacks.")
    strings: dict[str, int] = {"": 0}
    functions: dict[tuple[str, str], int] = {}
    places: dict[tuple[int, int], int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    def place(file: str, line: int, name: str) -> int:
        function = functions.setdefault((name, file), len(functions) + 1)
        return places.setdefault((function, line), len(places) + 1)

    def value_type(name: str, unit: str) -> bytes:
        return _number(1, text(name)) + _number(2, text(unit))

    message = bytearray(_bytes(1, value_type("samples", "count")) + _bytes(1, value_type("time", "nanoseconds")))
    for rank, row in rows:
        innermost_first = [place(*frame[:3]) for frame in reversed(row.frames)]
        sample = _numbers(1, innermost_first) + _numbers(2, (row.samples, round(1e9 * row.total)))
        for key, value in (("role", row.role), ("phase", row.phase)):
            sample += _bytes(3, _number(1, text(key)) + _number(2, text(value)))
        message += _bytes(2, sample + _bytes(3, _number(1, text("rank")) + _number(3, rank)))
    for (function, line), number in places.items():
        message += _bytes(4, _number(1, number) + _bytes(4, _number(1, function) + _number(2, line)))
    for (name, file), number in functions.items():
        message += _bytes(5, _number(1, number) + _number(2, text(name)) + _number(4, text(file)))
    run = profile.runs[0] if profile.runs else None
    if run is not None:
        message += _number(9, round(1e9 * run.started_at)) + _number(10, round(1e9 * (run.duration or 0)))
    message += _number(14, text("time"))
    for string in strings:
        message += _bytes(6, string.encode(errors="replace"))
    atomic_write.write(path, gzip.compress(bytes(message), mtime=0))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _numbers(field: int, values: Iterable[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))


def _varint(value: int) -> bytes:
    """Return a nonnegative number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
