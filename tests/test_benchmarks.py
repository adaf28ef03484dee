"""The benchmarks run and print what they should; their measurements are not tested."""

import json
import os
import subprocess
import sys

import pytest
from benchmarked import BENCHMARKS, imports
from programs import PATIENCE


@pytest.fixture
def ours():
    with imports(".") as name:
        yield name


def measured(tmp_path, *options):
    """Return the JSON of the shortest measurement with these options."""
    path = tmp_path / "result.json"
    least = ["--rounds", "1", "--turns", "1", "--pairs", "1", "--json", path]
    line = [sys.executable, BENCHMARKS / "overhead.py", *options, *least]
    done = subprocess.run(
        line, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert found["machine"]["cores"] > 0
    assert found["seconds"] > 0
    for row in found["rows"]:
        assert row["low"] <= row["median"] <= row["high"]
        assert row["verdict"] == "" if row["bar"] is None else row["verdict"] in ("ok", "above", "unclear")
        assert f"{row['what']} " in done.stdout
    return {row["what"]: row for row in found["rows"]}


@pytest.mark.slow
def test_side_by_side_benchmark_prints_its_rows(tmp_path):
    rows = measured(tmp_path, "--case", "50 us step()")

    assert {row["way"] for row in rows.values()} == {"profile-train"}
    assert rows["events a step"]["median"] == pytest.approx(2, abs=0.1)  # backward and step()
    assert rows["step, mean"]["bar"] == pytest.approx(5 + 0.3 * rows["events a step"]["median"])
    assert rows["recorder, memory, peak"]["median"] > 1
    assert rows["recorder, CPU of the run"]["median"] > 0
    assert rows["memory of the program, peak"]["bar"] == 5
    assert rows["start, to the script's first line"]["bar"] == 100


@pytest.mark.slow
def test_in_process_benchmark_prints_its_rows(tmp_path):
    rows = measured(tmp_path, "--in-process", "--case", "50 us")

    assert rows["events a step"]["median"] == pytest.approx(2, abs=0.1)  # backward and optimizer
    assert rows["step, median"]["bar"] == rows["step, mean"]["bar"] == pytest.approx(5.6, abs=0.1)
    assert rows["step without the agent, median"]["median"] > 0


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([1, 1, 1], "ok"), ([3, 3, 3], "above"), ([1, 2, 3], "unclear"), ([1, 1], "unclear")],
)
def test_verdict_needs_the_whole_interval_on_one_side_of_the_bar(ours, values, verdict):
    row = ours("rows").row("way", "case", "what", [values], "s", 1.5)
    assert row.verdict == verdict


def test_interval_of_two_processes_spans_their_difference(ours):
    assert ours("intervals").interval([[1.0] * 50, [3.0] * 50])[1:] == (1.0, 3.0)


@pytest.mark.process
def test_unmeasured_row_has_a_reason_and_no_figure(ours, tmp_path):
    ways, loops, plan = ours("ways"), ours("loops").LOOPS, ours("bench").Plan(rounds=1, turns=1, short=1)
    early, late = ours("bench").Bench(tmp_path), ours("bench").Bench(tmp_path, until=0)
    early.start_and_end(ways.torch_profiler(), plan)
    early.step(ways.lightning_simple(sys.executable), loops["50 us"], plan)
    late.step(ways.profile_train(), loops["50 us"], plan)

    rows = early.rows + late.rows
    assert [row.median for row in rows] == [None] * 3
    assert [row.why.partition(":")[0] for row in rows] == ["not applicable", "not applicable", "not measured"]
    assert all(row.why in ours("rows").table(rows) for row in rows)


@pytest.mark.parametrize(
    ("verdicts", "false", "within"),
    [
        ([(), ("refuted",), ("inconclusive", "failed")], 0, True),
        ([("harmful",), ("confirmed", "better"), ()], 2, False),
        ([("partial",), *[()] * 19], 1, True),
        ([("partial",), *[()] * 18], 1, False),
    ],
)
def test_round_with_any_gain_or_harm_is_a_false_positive(ours, verdicts, false, within):
    benchmark = ours("false_positives")
    tally = benchmark.Tally("A/A", tuple(tuple(map(benchmark.Verdict, each)) for each in verdicts))

    assert tally.false == false
    assert tally.is_within is within
    assert f"{false} of {len(verdicts)} rounds false" in str(tally)


def test_no_module_is_named_like_a_standard_library_module():
    """They are in the script's folder: torch would import them."""
    assert not {path.stem for path in BENCHMARKS.glob("*.py")} & sys.stdlib_module_names


@pytest.mark.process
def test_trace_benchmark_reports_time_and_memory(tmp_path):
    path = tmp_path / "result.json"
    line = [sys.executable, BENCHMARKS / "traces.py", "--rounds", "1", "--events", "2000", "--json", path]
    environment = {name: value for name, value in os.environ.items() if name != "PROFILE_TRAIN_HTA"}
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert len(found) == 3
    assert all(row["seconds"] > 0 and row["memory"] > 0 for case in found.values() for row in case.values())
    assert all(case in done.stdout for case in found)
