"""Someone else's recording: whatever its SQLite file contains, reading it does nothing but read our tables."""

import re
import sqlite3
from contextlib import closing

import pytest

from profiler.errors import ProfilerError
from profiler.recorder.record import finish_orphan
from profiler.schema import Problem, Run
from profiler.store import Writer, find, read

RUN = Run(
    id="a",
    command=("x.py",),
    cwd="/",
    host="node",
    started_at=1.7e9,
    cores=1.0,
    cores_total=1,
    memory_total=1,
    platform="Linux",
    python="3.11",
    version="0",
)


@pytest.fixture
def store(tmp_path):
    """Return a function that alters a recording by SQL, also its schema where SQLite would refuse. The recording has a
    problem."""
    writer = Writer(tmp_path, "node")
    writer.add(RUN)
    writer.add(Problem(time=1.0, source="ours", message="said"))
    writer.close()
    (path,) = find(tmp_path)

    def change(*statements):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            for statement in statements:
                connection.execute(statement)
        return path

    return change


def messages(tables):
    return [problem.message for problem in tables.problems]


def test_triggers_do_not_run_and_block_writing(store, tmp_path):
    path = store(
        "CREATE TRIGGER t AFTER INSERT ON problems BEGIN DELETE FROM runs; END",
        "CREATE TRIGGER u AFTER UPDATE ON runs BEGIN DELETE FROM problems; END",
    )

    before = path.read_bytes()
    assert messages(read(path)) == ["said"]
    with pytest.raises(ProfilerError, match="contains tables that profile-train did not write"):
        Writer(tmp_path, "node")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE VIEW problems AS SELECT 1.0 AS time, 1 AS pid, 'v' AS source, 'owned' AS message",),
        ("CREATE VIRTUAL TABLE problems USING fts5(time, pid, source, message)",),
        (
            "CREATE TABLE problems (time REAL AS (1.0), pid INTEGER AS (1), source TEXT AS ('g'),"
            " message TEXT AS (hex(zeroblob(9))), x)",
            "INSERT INTO problems (x) VALUES (1)",
        ),
    ],
    ids=["view", "virtual table", "generated columns"],
)
def test_view_or_virtual_table_in_place_of_a_table_is_not_read(store, statements):
    path = store("DROP TABLE problems", *statements)

    tables = read(path)

    assert tables.runs == (RUN,)
    assert all(problem.source == "store" for problem in tables.problems)
    assert "owned" not in messages(tables)


def test_version_is_not_read_from_a_view_named_runs(store):
    path = store(
        "DROP TABLE runs", "CREATE VIEW runs AS SELECT 'owned' AS version, 'a' AS id", "PRAGMA user_version = 999"
    )

    with pytest.raises(ProfilerError) as caught:
        read(path)
    assert "owned" not in str(caught.value)


@pytest.mark.parametrize("name", ['x" FROM runs; DROP TABLE runs; --', "';ATTACH '/tmp/x' AS y;--", "rowid"])
def test_names_from_the_file_are_not_used_in_sql(store, name):
    quoted = name.replace('"', '""')
    path = store(f'ALTER TABLE problems ADD COLUMN "{quoted}" TEXT', f'CREATE TABLE "{quoted}2" (x)')

    tables = read(path)

    assert tables.runs == (RUN,)
    assert messages(tables) in (["said"], [])


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH '{folder}/new.db' AS other",
        "SELECT load_extension('/tmp/x.so')",
        "INSERT INTO problems (message) VALUES ('x')",
        "DELETE FROM runs",
        "CREATE TABLE x (y)",
        "PRAGMA journal_mode = DELETE",
        "SELECT hex(randomblob(3))",
        "SELECT * FROM other_table",
    ],
)
def test_reading_connection_is_read_only_and_restricted(store, tmp_path, statement):
    from profiler.store import reader

    path = store("CREATE TABLE other_table (x)")
    denied = pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited")
    with closing(reader._connect(path, "mode=rw")) as connection, denied:
        connection.execute(statement.format(folder=tmp_path)).fetchall()
    assert not (tmp_path / "new.db").exists()


def test_host_name_cannot_escape_the_folder(tmp_path):
    writer = Writer(tmp_path / "run", "../../etc/x; DROP TABLE runs")
    writer.close()

    assert writer.path.parent == tmp_path / "run"
    assert re.fullmatch(r"run-[\w.-]+\.db", writer.path.name)


def test_folder_without_a_note_is_not_modified(store, tmp_path):
    path = store()
    before = path.read_bytes()

    assert finish_orphan(tmp_path) is None
    assert path.read_bytes() == before
