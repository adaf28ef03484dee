"""Several traces at once, each read by a process of its own, where that is worth starting one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

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

    Raises:
        ProfilerError: a process that read one was ended from outside.
    """
    processes = min(len(paths), MOST, _cores())
    if processes < 2 or sum(map(_size, paths)) < LARGE:
        return [_read(*_told(path)) for path in paths]
    # Forking would copy the threads' locks of whatever has been imported; only the paths are needed.
    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            return [_read(*told) for told in pool.map(_told, paths)]
    except BrokenProcessPool as error:
        raise ProfilerError(
            "A process that read one of the traces was ended, most likely for want of memory.",
            "Give fewer traces at a time.",
        ) from error


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
