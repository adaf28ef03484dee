"""Write a recording: in transactions, of bounded size for runs of any length, and resuming after a full disk."""

import errno
import os
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar, get_args

from profiler import schema
from profiler.errors import ProfilerError
from profiler.store.clean import clean
from profiler.store.merge import MERGES, merge, prepare
from profiler.store.remote import is_remote
from profiler.store.tables import APPLICATION, COLUMNS, FAILURES, NAMES, check, columns_of, holds_only_tables, listed

Keyed = schema.Run | schema.Process | schema.Gpu | schema.Sketch | schema.Stack | schema.Fact
Samples = schema.GpuSample | schema.HostSample | schema.MemorySample
InWindows = schema.Window | schema.Kernel | schema.Operator | schema.Sync
Row = Keyed | schema.Step | schema.Batch | Samples | InWindows | schema.Problem

# The key of a row: a new row replaces the stored one with the same key.
KEYS: dict[type, Callable[[Any], tuple[object, ...]]] = {
    schema.Run: lambda run: (run.id,),
    schema.Process: lambda process: (process.pid,),
    schema.Gpu: lambda gpu: (gpu.index,),
    schema.Sketch: lambda sketch: (sketch.pid, sketch.quantity),
    schema.Stack: lambda stack: (stack.pid, stack.id),
    schema.Fact: lambda fact: (fact.pid, fact.kind, fact.body.get("id")),
}

# The group of rows that share one limit (see Writer.LIMITS), as a function of the row and in SQL.
GROUPS: dict[type, tuple[Callable[[Any], tuple[object, ...]], tuple[str, ...]]] = {
    **{cls: (rule.key, rule.group) for cls, rule in MERGES.items()},
    **dict.fromkeys(get_args(InWindows), (lambda row: (row.pid,), ("pid",))),
    schema.Problem: (lambda problem: (), ()),
}


class Writer:
    """A writer to `<folder>/run-<host>.db`; all rows reach the disk together, at `commit`.

    A file of this schema is continued: this is how a report is made from what a killed recorder left.

    Raises:
        ProfilerError: the file cannot be made or belongs to something else.
    """

    LIMITS: ClassVar[dict[type, int]] = {
        schema.Step: 20_000,  # per process, for steady and for tagged steps: 4 MB, and more than a chart shows
        # Per worker and loader. A table of 16 times that is full as early as the table of steps, so a file reaches its
        # final size then. Metrics need only sums, which merging keeps, and the sketch.
        schema.Batch: 1_250,
        schema.GpuSample: 10_000,  # per GPU: 17 minutes of single rows at 10 Hz, and 26 s per row after 24 h
        schema.HostSample: 10_000,
        schema.MemorySample: 10_000,  # per device and rank
        # These are not merged: later rows are left out, and a Problem reports that.
        schema.Window: 10_000,  # the budget allows far fewer
        schema.Kernel: 50_000,  # per process: about a hundred per window
        schema.Operator: 20_000,  # per process: at most 200 per window
        schema.Sync: 10_000,  # per process: about ten per window
        schema.Problem: 1_000,
    }

    TOGETHER: ClassVar[tuple[type, ...]] = (schema.Step, schema.Batch)
    """Tables that grow with each step: when one is merged, so are the others.

    Otherwise they are at their fullest at different times, and a file grows until these times coincide.
    """

    LOG: ClassVar[int] = 1 << 22
    """Bytes of the write-ahead log that are kept on disk: SQLite checkpoints at this size, and a merge writes more."""

    PER_TABLE: ClassVar[int] = 16
    """Maximum size of a table in units of its limit: enough for a node of 8 GPUs with steady and tagged steps.

    Without it, loaders that restart their workers every epoch would fill one group after the other. Each process still
    keeps at least one row.
    """

    WAITING: ClassVar[int] = 20_000
    """Number of newest rows of a table that are kept in memory while the disk is full."""

    def __init__(self, folder: Path, host: str, known: Sequence[str] = (), *, shared: bool = False) -> None:
        """Open or create the file.

        `known` are secrets to hide wherever they occur; recognizable secrets are hidden anyway. `shared` means that
        other machines access the folder, too.
        """
        self._known = tuple(known)
        self.path = folder / f"run-{re.sub('[^A-Za-z0-9._-]', '_', host)}.db"
        self._singles: dict[type, dict[str, Row]] = defaultdict(dict)
        self._streams: dict[type, list[Any]] = {cls: [] for cls in GROUPS}
        self._cursors: dict[str, int | None] = {}
        self._sizes: dict[type, Counter[tuple[object, ...]]] = {}
        self._floors: dict[type, int] = {}
        self._clock = 0.0
        self._full: set[type] = set()
        self._failure: str | None = None
        self._lost = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
            if self.path.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            self._connection = _open_to_write(self.path, shared=shared or is_remote(self.path))
        except OSError as error:
            raise ProfilerError(
                f"The run folder {folder} cannot be written: {error.strerror}.", "Choose another one with --out."
            ) from error
        except FAILURES as error:
            raise ProfilerError(
                f"The recording {self.path} cannot be written: {error}.",
                "Free some disk space, or choose another folder with --out.",
            ) from error

    def add(self, *rows: Row) -> None:
        """Add rows to the end of their tables. In a table with keys, a row replaces the one of the same key."""
        for row in rows:
            row, cls = clean(row, self._known), type(row)
            if cls in KEYS:
                self._singles[cls][repr(KEYS[cls](row))] = row
            else:
                self._streams[cls].append(row)
                self._clock = getattr(row, "time", getattr(row, "start", self._clock))

    def set_cursor(self, name: str, value: int | None) -> None:
        """Store how far a source was read, together with what was read from it. None removes a source that is gone."""
        self._cursors[name] = value

    def cursor(self, name: str) -> int:
        """Return how far a source was read; 0 at first."""
        if name in self._cursors:
            return self._cursors[name] or 0
        row = self._connection.execute("SELECT value FROM cursors WHERE name = ?", (name,)).fetchone()
        return row[0] if row and isinstance(row[0], int) else 0

    def commit(self) -> bool:
        """Write everything added since the last commit, in one transaction; return whether that succeeded.

        If it fails, for example on a full disk, everything is kept in memory for the next commit, up to WAITING rows of
        a table. The first commit that succeeds adds a Problem that says what was lost.
        """
        if not (self._cursors or any(self._singles.values()) or any(self._streams.values())):
            return True
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._write()
        except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
            raise  # a value of a type that no column takes: a bug, not a problem of the disk
        except FAILURES as error:
            self._wait(str(error) or "out of memory")
            return False
        self._singles.clear()
        for rows in self._streams.values():
            rows.clear()
        self._cursors.clear()
        self._failure, self._lost = None, 0
        return True

    def close(self) -> bool:
        """Commit and leave a single file that can be read from anywhere; return False if the commit failed.

        If the file was deleted meanwhile, it is created again.
        """
        is_gone = not self.path.exists()
        if is_gone:
            message = f"{self.path} was deleted during the recording, and was created again."
            self.add(self._problem(message, "deleted"))
        written = self.commit()
        if is_gone:
            written &= self._make_again()
        with suppress(*FAILURES):  # a reader is active, or the disk is full: the log stays next to the file
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()
        return written

    def _make_again(self) -> bool:
        """Create a deleted file again from the open connection, which still has all its data."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(self.path)) as copy:
                self._connection.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
        except (OSError, *FAILURES):
            return False
        return True

    def _write(self) -> None:
        for cls, rows in self._singles.items():
            columns = COLUMNS[cls]
            updates = ", ".join(f'"{name}" = excluded."{name}"' for name in columns.names)
            keyed_rows = ((key, *columns.encode(row)) for key, row in rows.items())
            self._insert(NAMES[cls], ("key", *columns.names), keyed_rows, f"ON CONFLICT (key) DO UPDATE SET {updates}")
        problems = []
        if self._failure:
            loss = f"{self._lost} rows were lost" if self._lost else "nothing was lost"
            message = f"The recording could not be written for a while ({self._failure}); {loss}."
            problems.append(self._problem(message, "lost" if self._lost else "delayed"))
        for cls, new_rows in self._streams.items():
            if cls is not schema.Problem and (notice := self._append(cls, new_rows)):
                problems.append(self._problem(notice, "full"))
        self._append(schema.Problem, self._streams[schema.Problem] + problems)
        self._connection.executemany("INSERT OR REPLACE INTO cursors VALUES (?, ?)", self._cursors.items())
        self._connection.execute("DELETE FROM cursors WHERE value IS NULL")

    def _append(self, cls: type, rows: list[Any]) -> str | None:
        """Insert rows, then merge or leave out the excess; return a notice the first time rows are left out."""
        if not rows:
            return None
        (key, _), limit, name, columns = GROUPS[cls], self.LIMITS[cls], NAMES[cls], COLUMNS[cls]
        sizes = self._size(cls)
        notice = None
        if cls not in MERGES:
            # Compared with the size before this commit, so that a window's kernels are kept or left out together.
            kept_rows = [row for row in rows if sizes[key(row)] < limit]
            if len(kept_rows) < len(rows) and cls not in self._full:
                self._full.add(cls)
                notice = f"Only about the first {limit} {name} of each process are kept; later ones are missing."
            rows = kept_rows
        self._insert(name, columns.names, map(columns.encode, rows))
        added_counts = Counter(map(key, rows))
        sizes.update(added_counts)
        if cls in MERGES and self._bound(cls, added_counts) and cls in self.TOGETHER:
            for other_cls in self.TOGETHER:
                if other_cls is not cls:
                    self._bound(other_cls, list(self._size(other_cls)), share=0.5)
        return notice

    def _bound(self, cls: type, groups: Iterable[tuple[object, ...]], share: float = 1) -> bool:
        """Merge each group, and the table, if it exceeds a share of its limit; return whether anything was merged."""
        limit = self.LIMITS[cls]
        merged = False
        for group in groups:
            if self._size(cls)[group] > limit * share:
                merge(self._connection, NAMES[cls], cls, limit, group)
                del self._sizes[cls]
                merged = True
        if self._size(cls).total() > share * max(limit * self.PER_TABLE, self._floors.get(cls, 0)):
            merge(self._connection, NAMES[cls], cls, limit * self.PER_TABLE)
            del self._sizes[cls]
            merged = True
            self._floors[cls] = 2 * self._size(cls).total()  # else many groups would be merged at every commit
        return merged

    def _insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]], conflict: str = "") -> None:
        placeholders = ", ".join("?" * len(columns))
        self._connection.executemany(
            f"INSERT INTO {table} ({listed(columns)}) VALUES ({placeholders}) {conflict}", rows
        )

    def _size(self, cls: type) -> Counter[tuple[object, ...]]:
        """Return the number of rows by group, as seen in the open transaction."""
        if cls not in self._sizes:
            self._sizes[cls] = Counter()
            _, group = GROUPS[cls]
            clause = f"GROUP BY {', '.join(group)}" if group else ""
            query = f"SELECT {', '.join((*group, 'count(*)'))} FROM {NAMES[cls]} {clause}"
            for *values, rows in self._connection.execute(query):
                self._sizes[cls][tuple(values)] = rows
        return self._sizes[cls]

    def _problem(self, message: str, code: str) -> schema.Problem:
        return schema.Problem(time=self._clock, source="store", message=message, code=code)

    def _wait(self, failure: str) -> None:
        self._failure = failure
        self._sizes.clear()
        self._full.clear()
        for rows in self._streams.values():
            excess = max(0, len(rows) - self.WAITING)
            del rows[:excess]
            self._lost += excess


def _open_to_write(path: Path, *, shared: bool) -> sqlite3.Connection:
    try:
        if shared:  # the log's index is in memory, which machines do not share
            raise sqlite3.OperationalError
        connection = _connect(path, "PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError:
        # The filesystem has no shared memory for the log's index. The journal used instead is as safe. A process with
        # exclusive access needs no index, so it can read and remove a log that was left behind.
        connection = _connect(path, "PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA locking_mode = NORMAL")
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {Writer.LOG}")
        prepare(connection)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")
            connection.execute("CREATE TABLE IF NOT EXISTS cursors (name TEXT PRIMARY KEY, value INTEGER)")
            for cls, name in NAMES.items():
                key = ["key TEXT PRIMARY KEY"] if cls in KEYS else []
                columns = {column: f'"{column}" {kind}' for column, kind in COLUMNS[cls].types.items()}
                connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({', '.join((*key, *columns.values()))})")
                for column in columns.keys() - columns_of(connection, name):
                    connection.execute(f"ALTER TABLE {name} ADD COLUMN {columns[column]}")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    """Open a connection and set the journal mode.

    Raises:
        ProfilerError: the file belongs to something else; it is left unchanged.
    """
    connection = sqlite3.connect(path, timeout=2.0, isolation_level=None)
    try:
        *earlier_pragmas, journal = pragmas
        for pragma in earlier_pragmas:
            connection.execute(pragma)
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            check(connection, path)
            if not holds_only_tables(connection):
                raise ProfilerError(
                    f"{path} contains tables that profile-train did not write.", "Record into a new folder."
                )
        else:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")  # before any log: it must be in the header
        connection.execute(journal)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
