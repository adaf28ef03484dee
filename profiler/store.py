"""A run folder's SQLite file, one a node: written by the recorder, read by everyone, at any time and after any end.

Each dataclass of `profiler.schema` is a table, each of its fields a column; whatever is no number or text is JSON.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, get_args, get_type_hints
from urllib.parse import quote

from profiler.errors import ProfilerError
from profiler.merge import MERGES, merge, prepare
from profiler.schema import (
    SCHEMA_VERSION,
    Batch,
    Fact,
    Gpu,
    GpuSample,
    HostSample,
    Kernel,
    MemorySample,
    Problem,
    Process,
    Run,
    Sketch,
    Step,
    Window,
)
from profiler.values import Columns, decode_fact

__all__ = ["Single", "Stream", "Tables", "Writer", "decode_fact", "find", "read"]

Single = Run | Process | Gpu | Sketch | Fact
Stream = Step | Batch | GpuSample | HostSample | MemorySample | Window | Kernel | Problem

APPLICATION = 0x50724631
"""SQLite's application id: the file is ours."""

_UPGRADE = "Upgrade it: pip install --upgrade profile-train."
_ANEW = "Record the run again."


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
    problems: tuple[Problem, ...] = ()


_NAMES: dict[type, str] = {get_args(hint)[0]: name for name, hint in get_type_hints(Tables).items()}
_COLUMNS: dict[type, Columns] = {cls: Columns(cls) for cls in _NAMES}

# What makes a row the same row: it is replaced, not added.
_KEYS: dict[type, Callable[[Any], tuple[object, ...]]] = {
    Run: lambda run: (run.id,),
    Process: lambda process: (process.pid,),
    Gpu: lambda gpu: (gpu.index,),
    Sketch: lambda sketch: (sketch.pid, sketch.quantity),
    Fact: lambda fact: (fact.pid, fact.kind, fact.body.get("id")),
}

# What shares one limit (see Writer.LIMITS), by row and in SQL.
_GROUPS: dict[type, tuple[Callable[[Any], tuple[object, ...]], tuple[str, ...]]] = {
    **{cls: (how.key, how.group) for cls, how in MERGES.items()},
    Window: (lambda window: (window.pid,), ("pid",)),
    Kernel: (lambda kernel: (kernel.pid,), ("pid",)),
    Problem: (lambda problem: (), ()),
}


class Writer:
    """Appends to `<folder>/run-<host>.db`; nothing is on disk before `commit`, and then all of it at once.

    Raises ProfilerError if the file cannot be made or belongs to something else. A file of this schema is gone on with:
    that is how a report is made of what a killed recorder left.
    """

    LIMITS: ClassVar[dict[type, int]] = {
        Step: 20_000,  # a process, each of steady and tagged steps: 4 MB, and more than a chart shows
        Batch: 10_000,  # a worker and loader
        GpuSample: 10_000,  # a GPU: 17 minutes singly at 10 Hz, then 9 s a row after 24 h
        HostSample: 10_000,
        MemorySample: 10_000,  # a device and rank
        # These are not merged; what comes after is left out, and a Problem says so.
        Window: 10_000,  # the budget allows far fewer
        Kernel: 50_000,  # a process: some hundred a window
        Problem: 1_000,
    }

    GROUPS: ClassVar[int] = 16
    """A table may hold this many times its limit (a node of 8 GPUs with steady and tagged steps), as loaders that start
    their workers again every epoch would otherwise make ever more groups of rows; those keep one row each."""

    WAITING: ClassVar[int] = 20_000
    """Rows of a table kept in memory, newest first, while the disk is full."""

    def __init__(self, folder: Path, host: str) -> None:
        self.path = folder / f"run-{re.sub('[^A-Za-z0-9._-]', '_', host)}.db"
        self._singles: dict[type, dict[str, Single]] = defaultdict(dict)
        self._streams: dict[type, list[Any]] = {cls: [] for cls in _GROUPS}
        self._cursors: dict[str, int] = {}
        self._sizes: dict[type, Counter[tuple[object, ...]]] = {}
        self._most: dict[type, int] = {}
        self._clock = 0.0
        self._full: set[type] = set()
        self._failure: str | None = None
        self._lost = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = _open_to_write(self.path)
        except OSError as error:
            raise ProfilerError(
                f"The run folder {folder} cannot be written: {error.strerror}.", "Choose another one with --out."
            ) from error
        except sqlite3.Error as error:
            raise ProfilerError(
                f"The recording {self.path} cannot be written: {error}.",
                "Make room, or choose another folder with --out.",
            ) from error

    def put(self, row: Single) -> None:
        """Add a row, or replace the one of the same natural key."""
        self._singles[type(row)][repr(_KEYS[type(row)](row))] = row

    def append(self, rows: Sequence[Stream]) -> None:
        """Add rows to the end of their tables."""
        for row in rows:
            self._streams[type(row)].append(row)
        if rows:
            self._clock = getattr(rows[-1], "time", getattr(rows[-1], "start", self._clock))

    def set_cursor(self, name: str, value: int) -> None:
        """Remember how far a source was read, together with what was read from it."""
        self._cursors[name] = value

    def cursor(self, name: str) -> int:
        """How far a source was read; 0 at first."""
        if name in self._cursors:
            return self._cursors[name]
        found = self._connection.execute("SELECT value FROM cursors WHERE name = ?", (name,)).fetchone()
        return int(found[0]) if found else 0

    def commit(self) -> bool:
        """Write all that was given since the last commit, in one transaction.

        False if it could not be written: the disk is full, say. Then everything is kept in memory, up to WAITING rows
        of a table, for the next commit; the first one that succeeds leaves a Problem that says what was lost.
        """
        if not (self._cursors or any(self._singles.values()) or any(self._streams.values())):
            return True
        try:
            with _transaction(self._connection):
                self._write()
        except sqlite3.ProgrammingError:  # a bug of ours, no matter of the disk
            raise
        except (sqlite3.DatabaseError, MemoryError) as error:
            self._wait(str(error) or "out of memory")
            return False
        self._singles.clear()
        for rows in self._streams.values():
            rows.clear()
        self._cursors.clear()
        self._failure, self._lost = None, 0
        return True

    def close(self) -> bool:
        """Commit, and leave a single file that can be read from anywhere; False if the commit failed."""
        written = self.commit()
        with suppress(
            sqlite3.Error
        ):  # someone is reading, or the disk is full: the file is as good with its log beside it
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()
        return written

    def _write(self) -> None:
        for cls, rows in self._singles.items():
            names = _COLUMNS[cls].names
            replaced = ", ".join(f'"{name}" = excluded."{name}"' for name in names)
            self._connection.executemany(
                f"INSERT INTO {_NAMES[cls]} (key, {_list(names)}) VALUES (?, {_marks(names)}) "
                f"ON CONFLICT (key) DO UPDATE SET {replaced}",
                ((key, *_COLUMNS[cls].encode(row)) for key, row in rows.items()),
            )
        problems = []
        if self._failure:
            lost = f"{self._lost} rows were lost" if self._lost else "nothing was lost"
            problems.append(self._problem(f"The recording could not be written for a while ({self._failure}); {lost}."))
        for cls, appended in self._streams.items():
            if cls is not Problem and (notice := self._append(cls, appended)):
                problems.append(self._problem(notice))
        self._append(Problem, self._streams[Problem] + problems)
        self._connection.executemany("INSERT OR REPLACE INTO cursors VALUES (?, ?)", self._cursors.items())

    def _append(self, cls: type, rows: list[Any]) -> str | None:
        """Insert, and merge or leave out what is too much; a notice the first time something is left out."""
        if not rows:
            return None
        (key, _), limit, name, columns = _GROUPS[cls], self.LIMITS[cls], _NAMES[cls], _COLUMNS[cls]
        sizes = self._size(cls)
        notice = None
        if cls not in MERGES:
            kept = [
                row for row in rows if sizes[key(row)] < limit
            ]  # a window's kernels all or none: they come in one commit
            if len(kept) < len(rows) and cls not in self._full:
                self._full.add(cls)
                notice = f"No more than {limit} {name} are kept: the later ones are missing."
            rows = kept
        self._connection.executemany(
            f"INSERT INTO {name} ({_list(columns.names)}) VALUES ({_marks(columns.names)})", map(columns.encode, rows)
        )
        added = Counter(map(key, rows))
        sizes.update(added)
        if cls in MERGES:
            for group in added:
                if sizes[group] > limit:
                    merge(self._connection, name, cls, limit, group)
                    sizes = self._size(cls, anew=True)
            if sizes.total() > max(self._most.get(cls, 0), limit * self.GROUPS):
                merge(self._connection, name, cls, limit * self.GROUPS)
                self._most[cls] = (
                    2 * self._size(cls, anew=True).total()
                )  # else many groups would be merged at every commit
        return notice

    def _size(self, cls: type, anew: bool = False) -> Counter[tuple[object, ...]]:
        """Rows by group, as the open transaction has them."""
        if anew or cls not in self._sizes:
            self._sizes[cls] = Counter()
            _, group = _GROUPS[cls]
            by = f"GROUP BY {', '.join(group)}" if group else ""
            query = f"SELECT {', '.join((*group, 'count(*)'))} FROM {_NAMES[cls]} {by}"
            for *values, rows in self._connection.execute(query):
                self._sizes[cls][tuple(values)] = rows
        return self._sizes[cls]

    def _problem(self, message: str) -> Problem:
        return Problem(time=self._clock, source="store", message=message)

    def _wait(self, failure: str) -> None:
        self._failure = failure
        self._sizes.clear()
        for rows in self._streams.values():
            excess = max(0, len(rows) - self.WAITING)
            del rows[:excess]
            self._lost += excess


def find(folder: Path) -> list[Path]:
    """The files of a run folder's nodes, by name; ProfilerError if there is none."""
    remedy = "Give the folder that a run of profile-train has written."
    if not folder.is_dir():
        raise ProfilerError(f"There is no folder {folder}.", remedy)
    found = sorted(path for path in folder.glob("run-*.db") if path.is_file())
    if not found:
        raise ProfilerError(f"{folder} holds no recording.", remedy)
    return found


def read(path: Path) -> Tables:
    """What a node's file holds at this moment, whether it is being written, was left by a kill, or is damaged.

    Of a damaged file whatever SQLite can still reach is read, and `problems` says what is missing. Raises ProfilerError
    if that is nothing, if the file is not a recording, or if it was written by a newer profile-train.
    """
    try:
        if path.stat().st_size == 0:
            raise ProfilerError(f"{path} is empty: the recorder ended before it could write.", _ANEW)
        with _open_to_read(path) as connection:
            _check(connection, path)
            return _read(connection, path)
    except OSError as error:
        raise ProfilerError(f"{path} cannot be read: {error.strerror}.", "Check its path and permissions.") from error
    except (sqlite3.Error, MemoryError) as error:
        raise ProfilerError(f"{path} is damaged, nothing of it can be read ({error}).", _ANEW) from error


def _open_to_write(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=2.0, isolation_level=None)
    try:
        connection.execute(
            "PRAGMA journal_mode = WAL"
        )  # some filesystems cannot; the journal they get instead is as safe
        connection.execute("PRAGMA synchronous = NORMAL")
        prepare(connection)
        with _transaction(connection):
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                _check(connection, path)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("CREATE TABLE IF NOT EXISTS cursors (name TEXT PRIMARY KEY, value INTEGER)")
            for cls, name in _NAMES.items():
                key = "key TEXT PRIMARY KEY" if cls in _KEYS else ""
                columns = {f'"{column}"': f'"{column}" {kind}' for column, kind in _COLUMNS[cls].types.items()}
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(filter(None, (key, *columns.values())))})"
                )
                present = _present(connection, name)
                for column, declaration in columns.items():
                    if column.strip('"') not in present:
                        connection.execute(f"ALTER TABLE {name} ADD COLUMN {declaration}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _open_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that sees one state of the file, also where nothing may be written beside it."""
    log = path.with_name(f"{path.name}-wal")
    try:
        connection = _connect(path, "mode=ro")
    except sqlite3.OperationalError:
        if not log.exists():
            connection = _connect(path, "immutable=1")
        else:  # its newest rows lie in the log, which SQLite reads only where it may write
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / path.name
                shutil.copyfile(path, copy)
                shutil.copyfile(log, copy.with_name(log.name))
                with closing(_connect(copy, "mode=rw")) as connection:
                    yield connection
            return
    with closing(connection):
        yield connection


def _connect(path: Path, options: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{options}", uri=True, isolation_level=None)
    try:
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA writable_schema = ON")  # go on where the schema or the file's length is damaged
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ProfilerError unless the file is ours and of a schema we know."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION:
        if application == 0 and tables == 0:
            raise ProfilerError(f"{path} is empty: the recorder ended before it could write.", _ANEW)
        raise ProfilerError(f"{path} is not a recording of profile-train.", "Give the folder of a run.")
    if version > SCHEMA_VERSION:
        raise ProfilerError(
            f"{path} was written by a newer profile-train (schema {version}; this one knows {SCHEMA_VERSION}).",
            _UPGRADE,
        )


def _read(connection: sqlite3.Connection, path: Path) -> Tables:
    found: dict[str, Sequence[Any]] = {}
    notices = [] if _intact(connection) else [f"{path.name} is damaged: some of what is read from it may be wrong."]
    for cls, name in _NAMES.items():
        present = _present(connection, name)
        names = [column for column in _COLUMNS[cls].names if column in present]
        rows, failure = _scan(connection, name, names) if names else ([], None)
        found[name], unfit = _COLUMNS[cls].decode(names, rows)
        if failure:
            notices.append(f"{path.name} is damaged: of {name}, {len(rows)} rows could be read ({failure}).")
        if unfit:
            notices.append(f"{path.name}: {unfit} values of {name} are not what they should be and were left out.")
    if notices and not any(found.values()):
        raise ProfilerError(f"{path} is damaged, nothing of it can be read.", _ANEW)
    problems = (Problem(time=0.0, source="store", message=notice) for notice in notices)
    return Tables(**{name: (*rows, *problems) if name == "problems" else tuple(rows) for name, rows in found.items()})


def _scan(
    connection: sqlite3.Connection, name: str, columns: Sequence[str]
) -> tuple[list[Sequence[object]], str | None]:
    """The rows of a table in order; from both ends if it is torn in the middle, and what stopped it."""
    rows: dict[int, Sequence[object]] = {}
    failure = None
    for order in ("ASC", "DESC"):
        try:
            for rowid, *values in connection.execute(
                f"SELECT rowid, {_list(columns)} FROM {name} ORDER BY rowid {order}"
            ):
                if order == "DESC" and rowid in rows:
                    break
                rows[rowid] = values
            if order == "ASC":
                break
        except (sqlite3.Error, MemoryError) as error:
            failure = str(error) or "out of memory"
    return [rows[rowid] for rowid in sorted(rows)] if failure else list(rows.values()), failure


def _intact(connection: sqlite3.Connection) -> bool:
    try:
        return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.Error:
        return False


def _present(connection: sqlite3.Connection, name: str) -> set[str]:
    """The columns of a table; none if it is not there, or is no table."""
    ours = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone()
    return {column[1] for column in connection.execute(f"PRAGMA table_info({name})")} if ours else set()


def _list(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _marks(names: Sequence[str]) -> str:
    return ", ".join("?" * len(names))
