"""Run one SELECT on a run's store. Neither the store nor the client's SQL is trusted."""

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from profiler.errors import ProfilerError

MOST_ROWS = 200
MOST_SECONDS = 5.0
MOST_TEXT = 300
"""Most characters shown of a value."""
MOST_BYTES = 1 << 24
"""Largest value or row that SQLite may produce, in bytes."""

_LENGTH = 0  # SQLITE_LIMIT_LENGTH, from Python 3.11 on
_RECURSIVE = 33  # SQLITE_RECURSIVE: Python has no name for it
_STATEMENT_BUDGET = 1000  # SQLite instructions between two checks of the time

# Functions that cannot turn a small input into a large output, and that access nothing outside the file.
_FUNCTIONS = frozenset(
    (
        *("abs", "avg", "coalesce", "count", "cume_dist", "date", "datetime", "dense_rank", "first_value", "glob"),
        *("ifnull", "iif", "instr", "json_array_length", "json_extract", "json_type", "julianday", "lag", "last_value"),
        *("lead", "length", "like", "lower", "ltrim", "max", "min", "nth_value", "ntile", "nullif", "percent_rank"),
        *("rank", "round", "row_number", "rtrim", "strftime", "substr", "substring", "sum", "time", "total", "trim"),
        *("typeof", "unixepoch", "upper", "->", "->>"),
    )
)


def select(path: Path, sql: str, *, rows: int = MOST_ROWS, seconds: float = MOST_SECONDS) -> list[str]:
    """Return the result of the statement as lines of JSON: the names of the columns, then the rows.

    Raises:
        ProfilerError: it is not one SELECT, it reads anything but the file, it fails, or it takes too long.
    """
    deadline = time.monotonic() + seconds
    address = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=1.0)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            connection.execute("PRAGMA trusted_schema = OFF")
            if hasattr(connection, "setlimit"):
                connection.setlimit(_LENGTH, MOST_BYTES)
            connection.set_authorizer(_only_select)
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STATEMENT_BUDGET)
            cursor = connection.execute(sql)
            records = cursor.fetchmany(rows + 1)
            columns = [column[0] for column in cursor.description or ()]
            shown_rows = [[_shown(value) for value in row] for row in records[:rows]]
            notice = [f"[only the first {rows} rows; add LIMIT, or aggregate]"] if len(records) > rows else []
            return [json.dumps(columns), *(json.dumps(row, ensure_ascii=False) for row in shown_rows), *notice]
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if time.monotonic() > deadline:
            raise ProfilerError(f"The query took longer than {seconds:g} s.", "Read fewer rows.") from error
        raise ProfilerError(
            f"The query failed: {error}.",
            "Send one SELECT. Tables: SELECT name, sql FROM sqlite_master. Functions: " + " ".join(sorted(_FUNCTIONS)),
        ) from error


def _only_select(action: int, _first: str | None, second: str | None, _database: str | None, _in: str | None) -> int:
    """Allow reading and harmless functions; deny ATTACH, PRAGMA, writing and everything else."""
    allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, _RECURSIVE) or (
        action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _shown(value: object) -> object:
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    return value if not isinstance(value, str) or len(value) <= MOST_TEXT else f"{value[:MOST_TEXT]} [cut]"
