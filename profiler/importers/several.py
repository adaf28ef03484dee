"""Analyze several traces at once, in helper processes if these pay off."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from profiler.errors import ProfilerError
from profiler.importers.analysis import Analysis, analyze

LARGE = 100_000_000
"""Total bytes of JSON above which helper processes pay off.

Reading that much takes a second; a process takes a third of a second to start.
"""
PACKED = 10
"""Assumed minimum ratio of a trace's JSON size to its gzip size."""
MOST = 8
"""Maximum number of processes: each holds its trace's columns, up to half the size of the JSON."""


def analyze_all(paths: Sequence[Path]) -> list[Analysis | ProfilerError]:
    """Analyze each trace; return the analysis, or the error that explains why there is none.

    A trace whose process was killed, such as for lack of memory, is read again here: reading one at a time needs less.
    """
    processes = min(len(paths), MOST, _cores())
    if processes < 2 or sum(map(_size, paths)) < LARGE:
        return [_outcome(path) for path in paths]
    # Forking would copy locks that threads of imported modules hold; helpers need only the paths.
    context = get_context("spawn")
    counter = context.Value("i", 0)
    pipes = [context.Pipe(duplex=False) for _ in range(1, processes)]
    helpers = [context.Process(target=_help, args=(paths, counter, sender), daemon=True) for _, sender in pipes]
    for helper in helpers:
        helper.start()
    for _, sender in pipes:
        sender.close()  # else recv() would not see the end of the helper process
    try:
        outcomes = dict(_some(paths, counter))  # this process reads, too, while the others still start
        for receiver, _ in pipes:
            with suppress(EOFError):
                outcomes |= receiver.recv()
    finally:
        for helper in helpers:
            helper.terminate()
            helper.join()
    return [outcomes.get(number) or _outcome(path) for number, path in enumerate(paths)]


def _help(paths: Sequence[Path], taken: Any, into: Connection) -> None:
    """Analyze traces in a helper process and send back the results."""
    into.send(dict(_some(paths, taken)))
    into.close()


def _some(paths: Sequence[Path], taken: Any) -> Iterator[tuple[int, Analysis | ProfilerError]]:
    """Yield the analyses of traces that no other process has taken, with their positions."""
    while True:
        with taken.get_lock():
            number = taken.value
            taken.value += 1
        if number >= len(paths):
            return
        yield number, _outcome(paths[number])


def _outcome(path: Path) -> Analysis | ProfilerError:
    try:
        return analyze(path)
    except ProfilerError as error:
        return ProfilerError(error.message, error.remedy)  # without the traceback, which keeps the trace in memory


def _size(path: Path) -> int:
    try:
        return path.stat().st_size * (PACKED if path.suffix == ".gz" else 1)
    except OSError:
        return 0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
