"""The layout of a recording's file: a table per dataclass of `profiler.schema`, a column per field."""

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args, get_type_hints

from profiler import schema
from profiler.errors import ProfilerError
from profiler.store.values import Columns

APPLICATION = 0x50724631
"""SQLite's application ID of profile-train's files."""

FAILURES = (sqlite3.Error, MemoryError, UnicodeDecodeError)
"""Exceptions that SQLite raises for a damaged file; the last one if its own message quotes garbage."""

RECORD_AGAIN = "Record the run again."
"""The remedy for a recording that is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The content of one node's file; the names are the file's table names."""

    runs: tuple[schema.Run, ...] = ()
    processes: tuple[schema.Process, ...] = ()
    gpus: tuple[schema.Gpu, ...] = ()
    sketches: tuple[schema.Sketch, ...] = ()
    stacks: tuple[schema.Stack, ...] = ()
    facts: tuple[schema.Fact, ...] = ()
    steps: tuple[schema.Step, ...] = ()
    batches: tuple[schema.Batch, ...] = ()
    gpu_samples: tuple[schema.GpuSample, ...] = ()
    host_samples: tuple[schema.HostSample, ...] = ()
    memory_samples: tuple[schema.MemorySample, ...] = ()
    windows: tuple[schema.Window, ...] = ()
    kernels: tuple[schema.Kernel, ...] = ()
    operators: tuple[schema.Operator, ...] = ()
    syncs: tuple[schema.Sync, ...] = ()
    problems: tuple[schema.Problem, ...] = ()


NAMES: dict[type, str] = {get_args(hint)[0]: name for name, hint in get_type_hints(Tables).items()}
COLUMNS: dict[type, Columns] = {cls: Columns(cls) for cls in NAMES}


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the file is profile-train's and of a known schema.

    Raises:
        ProfilerError: it is not.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION:
        if application == 0 and tables == 0:
            raise ProfilerError(f"{path} is empty: the recorder ended before it could write.", RECORD_AGAIN)
        raise ProfilerError(f"{path} is not a profile-train recording.", "Give the folder of a run.")
    if version > schema.SCHEMA_VERSION:
        writer = _writer(connection)
        raise ProfilerError(
            f"{path} was written by {f'profile-train {writer}' if writer else 'a newer profile-train'} "
            f"(schema {version}); this version supports up to schema {schema.SCHEMA_VERSION}.",
            f"Upgrade it: pip install --upgrade {f'profile-train>={writer}' if writer else 'profile-train'!r}",
        )


def _writer(connection: sqlite3.Connection) -> str | None:
    """Return the version of profile-train that has written the file, if the file states it."""
    try:
        (version,) = connection.execute("SELECT version FROM runs").fetchone()
    except (*FAILURES, TypeError):
        return None
    return version if isinstance(version, str) and re.fullmatch(r"[0-9][\w.+!-]{0,40}", version, re.ASCII) else None


def holds_only_tables(connection: sqlite3.Connection) -> bool:
    """Return whether the file has only plain tables.

    Writing to a file with a trigger, view, virtual table or index could run its code.
    """
    cursor = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE NOT ((type = 'table' AND rootpage > 0)"
        " OR (type = 'index' AND name GLOB 'sqlite_autoindex_*'))"
    )
    return cursor.fetchone() is None


def columns_of(connection: sqlite3.Connection, name: str) -> set[str]:
    """Return the columns of a table, without generated ones; empty if it is missing or not a plain table.

    Views and virtual tables are not plain tables.
    """
    row = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ?", (name,)
    ).fetchone()
    return {column[1] for column in connection.execute(f"PRAGMA table_info({name})")} if row else set()


def listed(names: Sequence[str]) -> str:
    """Return column names quoted for SQL, because some, such as "index", are SQL keywords."""
    return ", ".join(f'"{name}"' for name in names)
