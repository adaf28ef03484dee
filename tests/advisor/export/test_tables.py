"""Tables: every row of the recording, with units, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import json
import sys

import pytest

from advisor.export import csv as csv_files
from advisor.export import parquet
from advisor.export.tables import Column
from advisor.export.units import UNITS, heading, unit
from advisor.metrics.base import Metrics
from advisor.report.quantities import quantities
from advisor.runs.load import load
from profiler.errors import ProfilerError
from profiler.schema import Batch, Gpu, HostSample, MemorySample, Problem, Run, Step
from profiler.store.tables import NAMES
from profiler.store.values import hints, kind


@pytest.fixture
def as_csv(exported, tmp_path):
    csv_files.write(*exported(), tmp_path / "csv")

    def rows(name):
        with open(tmp_path / "csv" / f"{name}.csv", newline="") as file:
            return list(csv.DictReader(file))

    return rows


@pytest.fixture
def as_parquet(exported, tmp_path):
    read = pytest.importorskip("pyarrow.parquet")
    parquet.write(*exported(), tmp_path / "parquet")
    return lambda name: read.read_table(tmp_path / "parquet" / f"{name}.parquet")


def test_there_is_a_file_for_each_table(as_csv, tmp_path):
    assert {path.stem for path in (tmp_path / "csv").iterdir()} == {*NAMES.values(), "metrics"}


def test_row_has_node_and_blank_for_unmeasured_values(as_csv):
    steps = as_csv("steps")

    assert [row["node"] for row in steps].count("b") == 50
    assert (steps[0]["forward_s"], steps[0]["h2d_s"], steps[0]["count"]) == ("0.03", "", "1")
    assert [row["utilization"] for row in as_csv("gpu_samples")] == ["0.75", ""]


def test_formulas_are_escaped_as_text(as_csv):
    (problem,) = as_csv("problems")

    assert problem["message"].startswith("'=HYPERLINK")
    assert json.loads(as_csv("runs")[0]["command"]) == ["=cmd|' /C calc'!A0", 'a"b\n,c']


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\uff1d1"])
def test_every_formula_prefix_is_escaped(text, tmp_path):
    with csv_files.begin(tmp_path, "t", ()) as take:
        take([(text, -1.5, "plain", None)])
    with open(tmp_path / "t.csv", newline="") as file:
        rows = list(csv.reader(file))

    assert rows == [[], [f"'{text}", "-1.5", "plain", ""]]


def test_lines_end_as_rfc_4180_says(as_csv, tmp_path):
    text = (tmp_path / "csv" / "batches.csv").read_bytes()

    assert text.count(b"\r\n") == text.count(b"\n") == 3


def test_metrics_are_those_of_the_report(as_csv, folder):
    profile = load(folder)
    m = Metrics(profile)
    rows = {row["name"]: row for row in as_csv("metrics")}
    ours = tuple(quantities(m))

    assert set(rows) == {one.name for one in ours}
    for one in ours:
        row = rows[one.name]
        assert (float(row["value"]) if row["value"] else None) == one.value
        assert (row["unit"], row["meaning"], row["missing"], row["remedy"]) == (
            (one.unit, one.meaning, one.missing, one.remedy)
        )
    assert rows["step_time_mean"]["value"]
    assert rows["h2d_fraction"]["missing"]


def test_columns_have_types_and_units(as_parquet):
    schema = as_parquet("gpu_samples").schema

    columns = {name: (str(schema.field(name).type), schema.field(name).metadata) for name in schema.names}
    assert columns["node"] == ("string", None)
    assert columns["gpu"] == ("int64", None)
    assert columns["time_s"] == ("double", {b"unit": b"s"})
    assert columns["memory_used_bytes"] == ("int64", {b"unit": b"B"})
    assert columns["utilization"] == ("double", {b"unit": b"1"})
    assert str(as_parquet("gpus").schema.field("gpm").type) == "bool"


def test_values_come_back_and_none_is_null(as_parquet):
    steps = as_parquet("steps").to_pylist()

    assert len(steps) == 151
    assert steps[0]["forward_s"] == 0.03
    assert steps[0]["h2d_s"] is None
    assert as_parquet("operators").num_rows == 0


def test_many_rows_are_written_piece_by_piece(tmp_path, monkeypatch):
    read = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet, "TOGETHER", 10)
    with parquet.begin(tmp_path, "t", (Column("n", int),)) as take:
        take((n,) for n in range(15))
        take((n,) for n in range(15, 25))

    assert read.ParquetFile(tmp_path / "t.parquet").num_row_groups == 3
    assert read.read_table(tmp_path / "t.parquet")["n"].to_pylist() == list(range(25))


def test_without_pyarrow_it_says_what_to_install(exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(ProfilerError, match="needs pyarrow") as error:
        parquet.write(*exported(), tmp_path)
    assert error.value.remedy == "pip install 'profile-train[export]'"


@pytest.mark.parametrize("table", NAMES, ids=NAMES.get)
def test_every_column_of_measurements_has_a_unit(table):
    numbers = {name for name, hint in hints(table).items() if kind(hint) is float}

    assert {name for name in numbers if not unit(table, name)} == set(), "add it to advisor/export/units.py"


def test_every_unit_belongs_to_existing_column():
    assert set(UNITS) <= {name for table in NAMES for name in hints(table)}


@pytest.mark.parametrize(
    ("table", "column", "name"),
    [
        (Step, "duration", "duration_s"),
        (Step, "index", "index"),
        (Run, "cores", "cores"),
        (HostSample, "cpu", "cpu_cores"),
        (Batch, "cpu", "cpu_s"),
        (HostSample, "read", "read_bytes_per_s"),
        (Gpu, "power_limit", "power_limit_watts"),
        (MemorySample, "reserved", "reserved_bytes"),
        (Problem, "time", "time_s"),
    ],
)
def test_names_of_columns_end_in_their_unit(table, column, name):
    assert heading(table, column) == name
