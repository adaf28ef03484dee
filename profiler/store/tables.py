"""How a recording's file looks: a table for each dataclass of `profiler.schema`, a column for each of its fields."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args, get_type_hints

from profiler.errors import ProfilerError
from profiler.schema import (
    SCHEMA_VERSION,
    Batch,
    Fact,
    Gpu,
    GpuSample,
    HostSample,
    Kernel,
    MemorySample,
    Operator,
    Problem,
    Process,
    Run,
    Sketch,
    Step,
    Window,
)
from profiler.store.values import Columns

APPLICATION = 0x50724631
"""SQLite's application id: the file is ours."""

FAILURES = (sqlite3.Error, MemoryError, UnicodeDecodeError)
"""What SQLite raises over a damaged file; the last when its own message quotes garbage."""

ANEW = "Record the run again."
"""The remedy for a recording that is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """All that one node's file holds; the names are the file's table names."""

    runs: tuple[Run, ...] = ()
    processes: tuple[Process, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    sketches: tuple[Sketch, ...] = ()
    facts: tuple[Fact, ...] = ()
    steps: tuple[Step, ...] = ()
    batches: tuple[Batch, ...] = ()
    gpu_samples: tuple[GpuSample, ...] = ()
    host_samples: tuple[HostSample, ...] = ()
    memory_samples: tuple[MemorySample, ...] = ()
    windows: tuple[Window, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    operators: tuple[Operator, ...] = ()
    problems: tuple[Problem, ...] = ()


NAMES: dict[type, str] = {get_args(hint)[0]: name for name, hint in get_type_hints(Tables).items()}
COLUMNS: dict[type, Columns] = {cls: Columns(cls) for cls in NAMES}


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ProfilerError unless the file is ours and of a schema we know."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION:
        if application == 0 and tables == 0:
            raise ProfilerError(f"{path} is empty: the recorder ended before it could write.", ANEW)
        raise ProfilerError(f"{path} is not a recording of profile-train.", "Give the folder of a run.")
    if version > SCHEMA_VERSION:
        writer = _writer(connection)
        raise ProfilerError(
            f"{path} was written by {f'profile-train {writer}' if writer else 'a newer profile-train'} "
            f"(schema {version}); this one knows schema {SCHEMA_VERSION}.",
            f"Upgrade it: pip install --upgrade {f'profile-train>={writer}' if writer else 'profile-train'!r}",
        )


def _writer(connection: sqlite3.Connection) -> str | None:
    """The version of profile-train that has written the file, if it says so where this one does."""
    try:
        (version,) = connection.execute("SELECT version FROM runs").fetchone()
    except (*FAILURES, TypeError):
        return None
    return version if isinstance(version, str) and re.fullmatch(r"[0-9][\w.+!-]{0,40}", version, re.ASCII) else None


def holds_only_tables(connection: sqlite3.Connection) -> bool:
    """The file has no trigger, view, virtual table or index that would run with what we write into it."""
    foreign = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE NOT ((type = 'table' AND rootpage > 0)"
        " OR (type = 'index' AND name GLOB 'sqlite_autoindex_*'))"
    )
    return foreign.fetchone() is None


def columns_of(connection: sqlite3.Connection, name: str) -> set[str]:
    """The columns of a table; none if it is not there, or is no table (a view, a virtual table).

    Generated columns are not among them.
    """
    ours = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ?", (name,)
    ).fetchone()
    return {column[1] for column in connection.execute(f"PRAGMA table_info({name})")} if ours else set()


def listed(names: Sequence[str]) -> str:
    """Column names as SQL wants them: some, as "index", are words of its own."""
    return ", ".join(f'"{name}"' for name in names)
