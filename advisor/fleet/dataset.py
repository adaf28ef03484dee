"""The Parquet data set of a fleet: append-only files, partitioned by day, opened by DuckDB in this process.

`FLEET/runs/day=2026-11-23/<import>.parquet`, and the same for `advice`. Each file has a unique name and appears
whole; a run imported again gets another row, and readers use the newest. So any number of importers may write at once.
"""

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from advisor.fleet.columns import TABLES, columns
from advisor.fleet.engine import AT_ONCE, rows
from advisor.fleet.places import find, listing
from advisor.fleet.read import Rows, fingerprint
from profiler.errors import ProfilerError

MEMORY = "1500MB"
"""DuckDB's memory limit; it spills larger data to its own files."""

CURRENT = """
SELECT run_id, import_id FROM (
  SELECT run_id, import_id, row_number() OVER (PARTITION BY run_id ORDER BY imported_at DESC, import_id DESC) AS place
  FROM all_runs WHERE run_id IN (SELECT run_id FROM all_runs GROUP BY run_id HAVING count(*) > 1)
) AS numbered WHERE place > 1
UNION DISTINCT
SELECT run_id, import_id FROM all_runs
WHERE status = 'unreadable' AND folder IN (SELECT folder FROM all_runs WHERE status <> 'unreadable')
"""
"""The superseded rows: those with a newer import of the run, and unreadable folders that another import could read."""

VIEWS = {
    "runs": "SELECT * FROM all_runs\nWHERE (run_id, import_id) NOT IN (SELECT run_id, import_id FROM superseded)",
    "advice": "SELECT * FROM all_advice\nWHERE (run_id, import_id) IN (SELECT run_id, import_id FROM runs)",
}
"""The views of `opened` for other engines; DuckDB before 1.2 cannot compare two columns with a subquery."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The numbers of run folders in an import."""

    found: int = 0
    read: int = 0
    not_complete: int = 0


def import_runs(fleet: Path, places: Sequence[str], engine: str = "processes", address: str | None = None) -> Imported:
    """Add the runs in those places that the data set does not hold, or that have changed since.

    Raises:
        ProfilerError: a place cannot be reached, or the data set cannot be written.
    """
    known = _known(fleet)
    folder_count = read_count = incomplete_count = 0
    folders = (folder for place in places for folder in find(place))
    while batch := list(islice(folders, AT_ONCE)):
        folder_count += len(batch)
        new_folders = [folder for folder in batch if _stamp(folder) not in known.get(folder, ())]
        if not new_folders:
            continue
        import_id = uuid.uuid4().hex
        # A copy of a run has the same ID.
        rows_by_id = {
            folder_rows.run.run_id: folder_rows for folder_rows in rows(new_folders, import_id, engine, address)
        }
        write(fleet, import_id, rows_by_id.values())
        read_count += len(new_folders)
        incomplete_count += sum(folder_rows.run.status != "complete" for folder_rows in rows_by_id.values())
    return Imported(folder_count, read_count, incomplete_count)


def write(fleet: Path, import_id: str, found: Iterable[Rows]) -> None:
    """Write rows into new files. The runs come last: an import without them is not known, and is repeated."""
    try:
        fleet.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=fleet, prefix=".import-"))
    except OSError as error:
        raise ProfilerError(
            f"{fleet} cannot be written: {error.strerror}.", "Name another folder with --data."
        ) from error
    try:
        files = {name: scratch / f"{name}.json" for name in TABLES}
        with files["runs"].open("w") as runs, files["advice"].open("w") as advice:
            for folder_rows in found:
                runs.write(json.dumps(asdict(folder_rows.run)) + "\n")
                advice.writelines(json.dumps(asdict(row)) + "\n" for row in folder_rows.advice)
        with _connected() as connection:
            for name in ("advice", "runs"):
                if files[name].stat().st_size:
                    _write_table(connection, name, files[name], fleet, import_id)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_table(connection: Any, name: str, lines: Path, fleet: Path, import_id: str) -> None:
    kinds = ", ".join(f"'{column}': '{kind}'" for column, kind in columns(name).items())
    source = (
        f"read_json({_quoted(lines)}, format='newline_delimited', columns={{{kinds}}}, maximum_object_size=67108864)"
    )
    partitions = lines.with_suffix("")
    connection.execute(
        f"COPY (SELECT * FROM {source}) TO {_quoted(partitions)} "
        "(FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day), WRITE_PARTITION_COLUMNS true)"
    )
    for day in partitions.iterdir():
        target = fleet / name / day.name
        target.mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(sorted(day.iterdir())):
            os.replace(file, target / f"{import_id}-{number}.parquet")


@contextmanager
def opened(fleet: Path, *, loaded: bool = False) -> Iterator[Any]:
    """Yield a DuckDB connection with the views `runs` and `advice`: each run once, as it was last imported.

    `loaded`: read all rows once, for many queries.

    Raises:
        ProfilerError: there is no data set.
    """
    files = {name: sorted(map(str, (fleet / name).glob("day=*/*.parquet"))) for name in TABLES}
    if not files["runs"]:
        raise ProfilerError(f"{fleet} holds no runs.", "Import some: profile-train fleet FOLDER_OF_RUNS")
    with _connected() as connection:
        for name in TABLES:
            kinds = columns(name)
            if files[name]:
                paths = ", ".join(map(_quoted, files[name]))
                source = f"read_parquet([{paths}], union_by_name=true, hive_partitioning=false)"
                present_columns = {row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
            else:
                source, present_columns = "(SELECT 1) WHERE false", set()
            expressions = (
                f"{column if column in present_columns else 'NULL'}::{kind} AS {column}"
                for column, kind in kinds.items()
            )
            connection.execute(f"CREATE VIEW all_{name} AS SELECT {', '.join(expressions)} FROM {source}")
        connection.execute(f"CREATE TEMP TABLE superseded AS {CURRENT}")
        (count,) = connection.execute("SELECT count(*) FROM superseded").fetchone()
        filters = {
            "runs": "WHERE (run_id, import_id) NOT IN (SELECT (run_id, import_id) FROM superseded)" if count else "",
            "advice": "SEMI JOIN runs USING (run_id, import_id)",  # a killed import may have written only its advice
        }
        for name in TABLES:
            kind = "TEMP TABLE" if loaded else "VIEW"
            connection.execute(f"CREATE {kind} {name} AS SELECT * FROM all_{name} {filters[name]}")
        yield connection


def _known(fleet: Path) -> dict[str, set[str]]:
    """Return the fingerprints under which each folder was imported."""
    if not any(fleet.glob("runs/day=*/*.parquet")):
        return {}
    stamps: dict[str, set[str]] = {}
    with opened(fleet) as connection:
        for folder, stamp in connection.execute("SELECT folder, fingerprint FROM all_runs").fetchall():
            stamps.setdefault(folder, set()).add(stamp)
    return stamps


def _stamp(folder: str) -> str:
    try:
        return fingerprint(listing(folder))
    except Exception:  # noqa: BLE001 - reading the folder will report it
        return ""


@contextmanager
def _connected() -> Iterator[Any]:
    try:
        import duckdb
    except ImportError as error:
        raise ProfilerError(
            f"profile-train fleet needs DuckDB, which is not installed here ({error}).",
            "pip install 'profile-train[fleet]'; for s3:// also s3fs, for gs:// gcsfs",
        ) from error
    settings = {"memory_limit": MEMORY, "autoinstall_known_extensions": "false"}
    with duckdb.connect(":memory:", config=settings) as connection:
        connection.execute("SET preserve_insertion_order = false")
        yield connection


def _quoted(path: Path | str) -> str:
    return "'" + str(path).replace("'", "''") + "'"
