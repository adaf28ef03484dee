"""Another engine reads a fleet's Parquet files, with the SQL that is used with DuckDB."""

from dataclasses import replace

import pytest
from fleet_made import DAY, START, advised, result, row, write

from advisor.fleet import engine, queries
from advisor.fleet.columns import TABLES
from advisor.fleet.dataset import CURRENT, VIEWS, import_runs, opened

pytestmark = pytest.mark.foreign

ASKED = {"hours": "gpu_hours", "price": "2.5", "since": "", "most": 9, "fewest": 2, "each": 9, "column": "user_name"}
PORTABLE = ("ALL", "BY", "STATUS", "UNREAD", "CHANGES", "PLANS", "COMPARABLE", "LOOK")


def test_clickhouse_returns_the_same_rows_as_duckdb(tmp_path, subtests):
    session = pytest.importorskip("chdb.session", reason="needs the extra `foreign`")
    for number in range(6):
        run = row(number, user=("ann", "bob", None)[number % 3], started_at=START + DAY * (number % 2))
        advice = [advised("workers", 0.4), advised("bf16", 0.3, 0.2)]
        write(tmp_path / f"runs/{number}", run, result(advice=advice) if number else None)
    fleet = tmp_path / "fleet"
    import_runs(fleet, [str(tmp_path / "runs")])
    (tmp_path / "runs/1/result.json").write_text("{}")
    import_runs(fleet, [str(tmp_path / "runs")])  # one run has two rows
    clickhouse = session.Session(str(tmp_path / "clickhouse"))
    clickhouse.query("CREATE DATABASE fleet ENGINE = Atomic")
    clickhouse.query("USE fleet")
    for name in TABLES:
        clickhouse.query(f"CREATE VIEW all_{name} AS SELECT * FROM file('{fleet}/{name}/*/*.parquet')")
    clickhouse.query(f"CREATE VIEW superseded AS {CURRENT}")
    for name, query in VIEWS.items():
        clickhouse.query(f"CREATE VIEW {name} AS {query}")
    with opened(fleet) as connection:
        for name in PORTABLE:
            query = getattr(queries, name).format(**ASKED)
            ours = connection.execute(query).fetchall()
            text = clickhouse.query(f"{query} SETTINGS join_use_nulls = 1", "JSONCompact").bytes()
            with subtests.test(name):
                assert comparable(json_rows(text)) == comparable(ours)
    clickhouse.close()


def json_rows(text):
    import json

    return json.loads(text)["data"]


def comparable(rows):
    """Return rows in one order, with numbers as numbers: ClickHouse writes 64-bit integers as text."""

    def value(one):
        try:
            return round(float(one), 6)
        except (TypeError, ValueError):
            return one

    return sorted(([value(one) for one in each] for each in rows), key=repr)


@pytest.mark.filterwarnings("ignore")  # warnings of Ray itself
def test_ray_imports_the_same_rows_as_processes(tmp_path):
    ray = pytest.importorskip("ray", reason="needs Ray")
    pytest.importorskip("ray.data", reason="needs Ray Data")
    for number in range(6):
        write(tmp_path / str(number), row(number), result(advice=[advised("workers", 0.4)]) if number else None)
    (tmp_path / "2/result.json").write_text("{")
    folders = sorted(str(folder) for folder in tmp_path.iterdir())
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        by_ray = engine.rows(folders, "import", "ray")
    finally:
        ray.shutdown()
    assert at_one_time(by_ray) == at_one_time(engine.rows(folders, "import"))


def at_one_time(found):
    return sorted(((replace(one.run, imported_at=0), one.advice) for one in found), key=repr)
