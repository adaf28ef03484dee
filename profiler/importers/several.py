"""Several traces at once, each read by a process of its own, where that is worth starting one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from profiler.errors import ProfilerError
from profiler.importers.analysis import Analysis, analyse

LARGE = 100_000_000
"""Bytes of JSON, together, that take a second to read; a process takes a third of one to start."""
PACKED = 10
"""Times that JSON of a trace is larger than what gzip makes of it, at least."""
MOST = 8
"""Processes: each holds the columns of its trace, which take up to half of the room of its JSON."""


def analyse_all(paths: Sequence[Path]) -> list[Analysis | ProfilerError]:
    """What each trace tells, or why it tells nothing.

    What a process was reading that was ended, as for want of memory, is read here: one at a time needs the least.
    """
    processes = min(len(paths), MOST, _cores())
    if processes < 2 or sum(map(_size, paths)) < LARGE:
        return [_read(*_told(path)) for path in paths]
    # Forking would copy the threads' locks of whatever has been imported; only the paths are needed.
    context = get_context("spawn")
    taken = context.Value("i", 0)
    pipes = [context.Pipe(duplex=False) for _ in range(1, processes)]
    others = [context.Process(target=_help, args=(paths, taken, into), daemon=True) for _, into in pipes]
    for other in others:
        other.start()
    for _, into in pipes:
        into.close()  # else the end of the process that has the other one would not be seen
    try:
        found = dict(_some(paths, taken))  # this process reads, too, while the others still start
        for out, _ in pipes:
            with suppress(EOFError):
                found |= out.recv()
    finally:
        for other in others:
            other.terminate()
            other.join()
    return [_read(*(found.get(number) or _told(path))) for number, path in enumerate(paths)]


def _help(paths: Sequence[Path], taken: Any, into: Connection) -> None:
    """In a process of its own."""
    into.send(dict(_some(paths, taken)))
    into.close()


def _some(paths: Sequence[Path], taken: Any) -> Iterator[tuple[int, tuple[Analysis | None, str, str]]]:
    """One trace after the other that no other process has taken, by its position."""
    while True:
        with taken.get_lock():
            number = taken.value
            taken.value += 1
        if number >= len(paths):
            return
        yield number, _told(paths[number])


def _told(path: Path) -> tuple[Analysis | None, str, str]:
    """As texts: an exception of ours cannot be sent from one process to another."""
    try:
        return analyse(path), "", ""
    except ProfilerError as error:
        return None, error.message, error.remedy


def _read(found: Analysis | None, message: str, remedy: str) -> Analysis | ProfilerError:
    return found or ProfilerError(message, remedy)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size * (PACKED if path.suffix == ".gz" else 1)
    except OSError:
        return 0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
