"""SQL of a client on a run's store."""

import json
import sqlite3

import pytest

from advisor.mcp.query import select
from profiler.errors import ProfilerError


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "run-?a=b.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE steps(number, note)")
    connection.executemany("INSERT INTO steps VALUES (?, ?)", [(n, "x" * 1000) for n in range(5)])
    connection.commit()
    connection.close()
    return path


def test_rows_are_read(store):
    found = select(store, "SELECT count(*) AS n, max(number) FROM steps")
    assert found == ['["n", "max(number)"]', "[5, 4]"]


def test_rows_and_values_are_bounded(store):
    found = select(store, "SELECT * FROM steps", rows=2)
    assert [json.loads(line)[0] for line in found[1:3]] == [0, 1]
    assert found[3:] == ["[only the first 2 rows; add LIMIT, or aggregate]"]
    assert all(len(line) < 400 for line in found)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM steps",
        "CREATE TABLE more(a)",
        "CREATE TEMP TABLE more(a)",
        "ATTACH '/tmp/other.db' AS other",
        "VACUUM INTO '/tmp/other.db'",
        "PRAGMA user_version = 7",
        "SELECT * FROM pragma_table_info('steps')",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT zeroblob(1000000000)",
        "SELECT printf('%1000000000d', 1)",
        "BEGIN",
        "SELECT 1; SELECT 2",
        "SELECT '\0'",
        "not SQL",
    ],
)
def test_everything_but_one_harmless_select_is_refused(store, sql):
    before = store.read_bytes()
    with pytest.raises(ProfilerError):
        select(store, sql)
    assert store.read_bytes() == before
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_time_is_bounded(store):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with pytest.raises(ProfilerError, match="longer than"):
        select(store, endless, seconds=0.05)
