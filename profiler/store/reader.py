"""Read a recording, at any time and however it ended."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from profiler.errors import ProfilerError
from profiler.schema import GpuSample, Problem, Process, Run, Step
from profiler.store.remote import is_remote
from profiler.store.tables import APPLICATION, COLUMNS, FAILURES, NAMES, RECORD_AGAIN, Tables, check, columns_of, listed
from profiler.store.thin import Conditions

MOST_RUNS = 100
"""Maximum rows to read of the table of runs: a recording has one."""


def find(folder: Path) -> list[Path]:
    """Return the files of a run folder's nodes, by name.

    Raises:
        ProfilerError: there is none.
    """
    remedy = "Name the folder of a profile-train run."
    if not folder.is_dir():
        raise ProfilerError(f"There is no folder {folder}.", remedy)
    paths = sorted(path for path in folder.glob("run-*.db") if path.is_file())
    if not paths:
        raise ProfilerError(f"{folder} contains no recording.", remedy)
    return paths


def is_recording(path: Path) -> bool:
    """Return whether the file has a recording's header, or is still empty and may become a recording."""
    try:
        with path.open("rb") as file:
            header = file.read(72)
    except OSError:
        return False
    return not header or header[68:] == APPLICATION.to_bytes(4, "big")


def read(path: Path, conditions: Conditions | None = None) -> Tables:
    """Return the current content of a node's file; only the rows that meet the conditions.

    The file may be in use by a writer, left by a killed one, or damaged. From a damaged file, everything that SQLite
    can still reach is read, and `problems` lists what is missing.

    Raises:
        ProfilerError: nothing can be read, the file is not a recording, or a newer profile-train has written it.
    """
    with _opened(path) as connection:
        return _read(connection, path, conditions)


def runs(path: Path) -> tuple[Run, ...]:
    """Return the runs in one node's file, without reading the rest.

    Raises:
        ProfilerError: as in `read`.
    """
    with _opened(path) as connection:
        return tuple(_rows(connection, Run, f"rowid IN (SELECT rowid FROM runs ORDER BY rowid LIMIT {MOST_RUNS})")[0])


def outline(path: Path) -> tuple[list[str], str]:
    """Return the command and the outcome of one node's file, both empty if it contains no run.

    The context manager calls this in the program's process, which must load only the standard library.

    Raises:
        ProfilerError: as in `read`.
    """
    with _opened(path) as connection:
        row = connection.execute("SELECT command, outcome FROM runs ORDER BY rowid DESC LIMIT 1").fetchone()
        command, outcome = row or ("[]", "")
        try:
            return [str(word) for word in json.loads(command)], str(outcome)
        except (ValueError, TypeError, RecursionError):
            return [], str(outcome)


def survey(path: Path) -> Survey:
    """Return how much a node's file holds, without reading it.

    Raises:
        ProfilerError: as in `read`.
    """
    with _opened(path) as connection:
        processes, _, _ = _rows(connection, Process)
        return Survey(tuple(processes), _extent(connection, Step, "index"), _extent(connection, GpuSample, "time"))


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a table."""

    rows: int = 0
    end: float = 0.0
    """Index or time of its last row."""


@dataclass(frozen=True, slots=True)
class Survey:
    """A summary of a node's file, made before it is read."""

    processes: tuple[Process, ...] = ()
    steps: Extent = Extent()
    gpu_samples: Extent = Extent()


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    # Checked without opening: closing a file releases the locks that SQLite holds on it for a Writer of this process.
    if not path.is_file() or not os.access(path, os.R_OK):
        raise ProfilerError(f"{path} cannot be read.", "Check its path and permissions.")
    try:
        if not path.stat().st_size:
            raise ProfilerError(f"{path} is empty: the recorder ended before it could write.", RECORD_AGAIN)
        with _interrupts_held_back(), _open_to_read(path) as connection:
            check(connection, path)
            yield connection
    except OSError as error:
        raise ProfilerError(
            f"{path} cannot be read: {error.strerror}.",
            "Check that the file can be read and that the temporary folder ($TMPDIR or /tmp) has free space.",
        ) from error
    except FAILURES as error:
        raise ProfilerError(f"{path} is damaged: no part of it can be read ({error}).", RECORD_AGAIN) from error


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Delay Ctrl-C: SQLite would swallow a KeyboardInterrupt in the authorizer and take it for a denial."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    interrupts = list[int]()
    signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupts:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _open_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection that sees one state of the file, even if nothing may be written next to it."""
    log = path.with_name(f"{path.name}-wal")
    try:
        if log.exists() and is_remote(path):  # its writer may be on another machine, invisible to us
            raise sqlite3.OperationalError
        connection = _connect(path, "mode=ro")
    except FAILURES:
        if not log.exists():
            connection = _connect(path, "immutable=1")
        else:  # its newest rows are in the log, which SQLite reads only where it can write
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / path.name
                for original in (path, log):
                    (Path(folder) / original.name).touch(0o600)
                    shutil.copyfile(original, Path(folder) / original.name)
                with closing(_connect(copy, "mode=rw")) as connection:
                    yield connection
            return
    with closing(connection):
        yield connection


def _connect(path: Path, options: str) -> sqlite3.Connection:
    address = f"file:{quote(os.fsencode(path.absolute()))}?{options}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        connection.set_authorizer(_only_reading)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA writable_schema = ON")  # continue if the schema or the file's length is damaged
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


_TABLES = frozenset((*NAMES.values(), "sqlite_master"))
_PRAGMAS = re.compile("application_id|page_size|quick_check|table_info|trusted_schema|user_version|writable_schema")


def _only_reading(action: int, first: str | None, second: str | None, _database: str | None, within: str | None) -> int:
    """Deny everything except reading the recording's tables, because a recording may come from anyone.

    Statements of the file itself (`within` one of its triggers or views) are denied, too.
    """
    is_allowed = within is None and (
        action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION)
        or (action == sqlite3.SQLITE_READ and first in _TABLES)
        or (action == sqlite3.SQLITE_PRAGMA and _PRAGMAS.fullmatch(first or ""))
        or (action == sqlite3.SQLITE_FUNCTION and second == "count")
    )
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def _read(connection: sqlite3.Connection, path: Path, conditions: Conditions | None) -> Tables:
    tables: dict[str, Sequence[Any]] = {}
    # Checking a whole file takes longer than reading a part of it; damage in that part still fails.
    is_intact = _is_intact(connection, path, all_of_it=conditions is None)
    notices = [] if is_intact else [("damaged", f"{path.name} is damaged: values read from it may be wrong.")]
    for cls, name in NAMES.items():
        tables[name], unfit_count, failure = _rows(connection, cls, (conditions or {}).get(cls, "1"))
        if failure:
            notices.append(("damaged", f"{path.name} is damaged: {failure}."))
        if unfit_count:
            message = f"{path.name}: {unfit_count} values of {name} are invalid and were left out."
            notices.append(("unfit", message))
    if notices and not any(tables.values()):
        raise ProfilerError(f"{path} is damaged: no part of it can be read.", RECORD_AGAIN)
    problems = (Problem(time=0.0, source="store", message=message, code=code) for code, message in notices)
    return Tables(**{name: (*rows, *problems) if name == "problems" else tuple(rows) for name, rows in tables.items()})


def _rows(connection: sqlite3.Connection, cls: type, condition: str = "1") -> tuple[list[Any], int, str]:
    """Return the rows that meet the condition, the number of their unfit values, and the failure."""
    name = NAMES[cls]
    existing = columns_of(connection, name)
    names = [column for column in COLUMNS[cls].names if column in existing]
    rows, failure = _scan(connection, name, names, condition) if names else ([], None)
    instances, unfit_count = COLUMNS[cls].decode(names, rows)
    return (
        instances,
        unfit_count,
        f"only {len(rows)} of the rows of {name} could be read ({failure})" if failure else "",
    )


def _extent(connection: sqlite3.Connection, cls: type, column: str) -> Extent:
    """Return the extent of a table; empty if it is missing or damaged, which reading it will report."""
    name = NAMES[cls]
    if column not in columns_of(connection, name):
        return Extent()
    with suppress(*FAILURES):
        (rows,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
        (end,) = connection.execute(f'SELECT "{column}" FROM {name} ORDER BY rowid DESC LIMIT 1').fetchone() or (0,)
        if isinstance(end, int | float) and math.isfinite(end):
            return Extent(rows, end)
    return Extent()


def _scan(
    connection: sqlite3.Connection, name: str, columns: Sequence[str], condition: str
) -> tuple[list[Sequence[object]], str | None]:
    """Return the rows of a table in order, and the failure if any.

    If the table is torn in the middle, rows are read from both ends.
    """
    source = f"FROM {name} WHERE {condition} ORDER BY rowid"
    try:
        return connection.execute(f"SELECT {listed(columns)} {source}").fetchall(), None
    except FAILURES as error:
        failure = str(error) or "out of memory"
    rows: dict[int, Sequence[object]] = {}
    for order in ("", "DESC"):
        with suppress(*FAILURES):
            for rowid, *values in connection.execute(f"SELECT rowid, {listed(columns)} {source} {order}"):
                if rowid in rows:
                    break
                rows[rowid] = values
    return [rows[rowid] for rowid in sorted(rows)], failure


def _is_intact(connection: sqlite3.Connection, path: Path, *, all_of_it: bool) -> bool:
    """Return whether the file ends at a page boundary and, if `all_of_it`, SQLite finds nothing wrong.

    SQLite would fill up a partial page with zeros.
    """
    try:
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        if path.stat().st_size % int(page):
            return False
        return not all_of_it or connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except FAILURES:
        return False
