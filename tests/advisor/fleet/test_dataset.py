"""The data set is append-only and holds each run once, whoever imports it and how often."""

import json
import threading
from pathlib import Path

import jsonschema
import pytest
from fleet_made import DAY, START, advised, result, row, write

from advisor.cli import main
from advisor.fleet.columns import TABLES, columns
from advisor.fleet.dataset import Imported, _write_table, import_runs, opened
from advisor.fleet.overview import overview
from advisor.fleet.places import find
from advisor.fleet.read import read
from advisor.report.render import fleet as rendered
from profiler.errors import ProfilerError

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "fleet.schema.json").read_text())

pytest.importorskip("duckdb", reason="needs the extra `fleet`")


@pytest.fixture
def runs(tmp_path):
    """Write three runs of two scripts by two users, on two days; one run failed."""
    advice = [advised("workers", 0.4, title="Start workers"), advised("bf16", 0.3, 0.2)]
    write(tmp_path / "runs/a", row(1), result(advice=advice, price=2.0))
    write(tmp_path / "runs/b", row(2, user="bob", started_at=START + DAY), result(advice=advice))
    other = row(3, command=("eval.py",), host="node2", outcome="failed", duration=1800.0, started_at=START + DAY)
    write(tmp_path / "runs/c", other, result(duration=1800.0, outcome="failed"))
    return tmp_path / "runs"


def asked(fleet, query):
    with opened(fleet) as connection:
        return connection.execute(query).fetchall()


def test_repeated_import_adds_nothing(tmp_path, runs):
    fleet = tmp_path / "fleet"
    assert import_runs(fleet, [str(runs)]) == Imported(3, 3, 0)
    files = sorted(fleet.rglob("*.parquet"))
    assert import_runs(fleet, [str(runs)]) == Imported(3, 0, 0)
    assert sorted(fleet.rglob("*.parquet")) == files
    assert {path.parent.name for path in files} == {"day=2025-12-29", "day=2025-12-30"}


def test_changed_run_replaces_its_rows(tmp_path, runs):
    fleet = tmp_path / "fleet"
    import_runs(fleet, [str(runs)])
    (runs / "a/result.json").write_text(json.dumps(result(duration=7200.0)))
    write(runs / "d", row(4), result())
    assert import_runs(fleet, [str(runs)]).read == 2
    assert asked(fleet, f"SELECT gpu_hours FROM runs WHERE run_id = '{1:032x}'") == [(16.0,)]
    assert asked(fleet, "SELECT count(*) FROM runs") == [(4,)]
    assert asked(fleet, f"SELECT count(*) FROM advice WHERE run_id = '{1:032x}'") == [(0,)]


def test_copied_run_counts_once_and_repaired_run_replaces_its_row(tmp_path, runs):
    fleet = tmp_path / "fleet"
    write(runs / "copy", row(1), result())
    (runs / "late").mkdir()
    (runs / "late/run-node1.db").touch()
    assert import_runs(fleet, [str(runs)]).not_complete == 1
    assert asked(fleet, "SELECT count(*), count(DISTINCT run_id) FROM runs") == [(4, 4)]
    (runs / "late/run-node1.db").unlink()
    (runs / "late").rmdir()
    write(runs / "late", row(9), result())
    import_runs(fleet, [str(runs)])
    assert asked(fleet, "SELECT count(*) FROM runs WHERE status = 'unreadable'") == [(0,)]


def test_concurrent_imports_add_each_run_once(tmp_path, runs):
    fleet = tmp_path / "fleet"
    failures = []

    def run():
        try:
            import_runs(fleet, [str(runs)])
        except Exception as error:  # noqa: BLE001 - whatever it is
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert asked(fleet, "SELECT count(*), count(DISTINCT run_id) FROM runs") == [(3, 3)]
    assert asked(fleet, "SELECT count(*) FROM advice") == [(4,)]
    assert not list(fleet.glob(".import-*"))


def test_repeating_killed_import_creates_no_duplicates(tmp_path, runs, monkeypatch):
    fleet = tmp_path / "fleet"

    def killed(connection, name, *rest):
        if name == "runs":
            raise KeyboardInterrupt
        _write_table(connection, name, *rest)

    with monkeypatch.context() as patched:
        patched.setattr("advisor.fleet.dataset._write_table", killed)
        with pytest.raises(KeyboardInterrupt):
            import_runs(fleet, [str(runs)])
    assert len(list(fleet.glob("advice/*/*.parquet"))) == 2
    import_runs(fleet, [str(runs)])
    for loaded in (False, True):
        with opened(fleet, loaded=loaded) as connection:
            assert connection.execute("SELECT count(*) FROM advice").fetchall() == [(4,)]


def test_reads_tables_with_missing_and_extra_columns(tmp_path, runs):
    import duckdb

    fleet = tmp_path / "fleet"
    import_runs(fleet, [str(runs)])
    target = fleet / "runs/day=2024-01-01"
    target.mkdir()
    older = "SELECT 'x' AS run_id, 'i' AS import_id, 1.0 AS imported_at, 'complete' AS status, 'f' AS folder, 7 AS new"
    duckdb.connect().execute(f"COPY ({older}) TO '{target}/old.parquet' (FORMAT parquet)")
    assert asked(fleet, "SELECT gpu_hours FROM runs WHERE run_id = 'x'") == [(None,)]


def test_a_url_is_read_through_fsspec(tmp_path, runs):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(runs), "/bucket/runs", recursive=True)
    fleet = tmp_path / "fleet"
    assert import_runs(fleet, ["memory://bucket/runs"]) == Imported(3, 3, 0)
    assert import_runs(fleet, ["memory://bucket/runs"]).read == 0
    local = {read(folder).run.run_id for folder in find(str(runs))}
    assert {run for (run,) in asked(fleet, "SELECT run_id FROM runs")} == local


def test_url_with_missing_package_names_package():
    with pytest.raises(ProfilerError) as refused:
        list(find("abfs://container/runs"))
    assert "adlfs" in refused.value.remedy


def test_runs_without_gpu_cost_no_money(tmp_path, runs):
    write(runs / "cpu", row(4, user="eve"), result(gpus=0, price=2.0))
    fleet = tmp_path / "fleet"
    import_runs(fleet, [str(runs)])
    with opened(fleet, loaded=True) as connection:
        gpus, cores = overview(connection, price=3.0), overview(connection, price=3.0, unit="CPU")
    assert cores.total.hours == gpus.other.hours == 4.0
    assert {part.money for part in (cores.total, gpus.other, *cores.by["user"], *cores.weeks)} == {None}
    assert gpus.total.money == 60.0


def test_the_overview_adds_hours_up(tmp_path, runs):
    fleet = tmp_path / "fleet"
    import_runs(fleet, [str(runs)])
    with opened(fleet, loaded=True) as connection:
        made = overview(connection)
        later = overview(connection, since="2025-12-30", price=3.0)
        cores = overview(connection, unit="CPU")
    assert (made.unit, made.total.runs, made.total.hours) == ("GPU", 3, 20.0)
    assert made.total.lost["data_wait"] == pytest.approx(20.0 * 0.9 * 0.2)
    assert made.total.lost["communication"] is None
    assert made.total.money == 16.0  # of the one run that declares a price
    assert later.total.money == 36.0
    assert made.total.ended_badly == 4.0
    assert {part.name: part.hours for part in made.by["user"]} == {"ann": 12.0, "bob": 8.0}
    assert [(week.name, week.runs) for week in made.weeks] == [("2025-12-29", 3)]
    assert [(one.rule, one.saves) for one in made.changes] == [
        ("workers", pytest.approx(5.76)),
        ("bf16", pytest.approx(1.728)),
    ]
    assert made.plan_hours == pytest.approx(sum(one.saves for one in made.changes))
    assert made.look[0].outcome == "failed"
    assert sum(cell["hours"] for cell in made.cells) == 20.0
    assert cores.total.runs == 0


def test_runs_of_equal_cost_have_stable_order(tmp_path):
    for number, name in enumerate("cab"):
        write(tmp_path / "runs" / name, row(number, outcome="failed"), result(outcome="failed"))
        import_runs(tmp_path / "fleet", [str(tmp_path / "runs")])
    with opened(tmp_path / "fleet") as connection:
        look = overview(connection).look
    assert [Path(run.folder).name for run in look] == ["a", "b", "c"]


def test_advice_absent_from_newest_run_is_dropped(tmp_path, runs):
    write(runs / "fixed", row(5, started_at=START + 2 * DAY), result())
    import_runs(tmp_path / "fleet", [str(runs)])
    with opened(tmp_path / "fleet", loaded=True) as connection:
        assert overview(connection).changes == []


def test_the_command_writes_the_page_and_its_json(tmp_path, runs, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fleet", str(runs), "--data", "fleet", "--gpu-price", "2"]) == 0
    assert (tmp_path / "fleet/fleet.html").is_file()
    assert json.loads((tmp_path / "fleet/fleet.json").read_text())["total"]["money"] == 40.0
    capsys.readouterr()
    assert main(["fleet", "--data", "fleet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["runs"] == 3


def test_json_validates_against_schema(tmp_path):
    """Covers a fleet in which every list has an entry, one without GPUs, and runs about which nothing is known."""
    known = {"user": None, "project": None, "commit": None}
    advice = [advised("workers", 0.4), advised("bf16", 0.3, 0.2)]
    made, number = tmp_path / "runs", 0
    for commit, host, step in (("a", "n1", 0.1), ("b", "n1", 0.13), ("a", "n2", 0.1), ("a", "n3", 0.13)):
        for _ in range(5):
            number += 1
            about = {"commit": commit * 40, "host": host, "started_at": START + DAY * (commit == "b") + number}
            what = result(step=step * (1 + number / 1e4), advice=advice, price=2.0)
            write(made / str(number), row(number, **about), what)
    write(made / "failed", row(97, **known, outcome="failed"), result(outcome="failed", phases={}))
    write(made / "partial", row(98, **known), None)
    write(made / "cpu", row(99), result(gpus=0))
    (made / "unreadable").mkdir()
    (made / "unreadable/run-a.db").touch()
    import_runs(tmp_path / "fleet", [str(made)])
    write(tmp_path / "unknown", row(**known), None)
    import_runs(tmp_path / "other", [str(tmp_path / "unknown")])
    found = []
    for fleet, unit in (("fleet", None), ("fleet", "CPU"), ("other", None)):
        with opened(tmp_path / fleet, loaded=True) as connection:
            found.append(json.loads(rendered.as_json(overview(connection, unit=unit, since="2025-01-01"))))
    for each in found:
        jsonschema.validate(each, SCHEMA)
    assert [name for name, value in found[0].items() if not value] == []
    assert {(one["before"], one["after"]) for one in found[0]["regressions"]} == {("a" * 40, "b" * 40)}
    assert {one["after"] for one in found[0]["slow_hosts"]} == {"n3"}


def test_configuration_sets_dataset_folder(tmp_path, runs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.toml").write_text('fleet = "ours"\n')
    assert main(["fleet", str(runs), "--config", "settings.toml"]) == 0
    assert (tmp_path / "ours/fleet.json").is_file()


@pytest.mark.parametrize("words", [("nowhere",), ("--since", "yesterday"), ("empty",), ()])
def test_user_mistake_exits_with_1(tmp_path, runs, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    if "--since" in words:
        import_runs(tmp_path / "profile-train-fleet", [str(runs)])
    assert main(["fleet", *words]) == 1


@pytest.mark.parametrize("price", ["inf", "nan", "-1"])
def test_invalid_price_is_usage_error(tmp_path, runs, monkeypatch, price, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fleet", str(runs), "--gpu-price", price]) == 2
    assert "is not a price" in capsys.readouterr().err


def test_every_column_has_a_type():
    assert all(set(columns(name).values()) <= {"VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN"} for name in TABLES)
