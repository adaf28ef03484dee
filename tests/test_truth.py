"""The truth benchmark: its table names existing rules, and its scores are correct."""

import json
import re
import subprocess
import sys
from fnmatch import fnmatch

import pytest
from benchmarked import BENCHMARKS, imports
from programs import PATIENCE

from advisor.rules import all_rules

TRUTH = BENCHMARKS / "truth"
RULES = {rule.id for rule in all_rules()}


@pytest.fixture(scope="module")
def ours():
    with imports("truth", ".") as name:
        yield name


@pytest.fixture
def row(ours):
    return lambda name: next(each for each in ours("table").ROWS if each.id == name)


@pytest.fixture
def said(ours):
    """Return what a run said, given the rules above information."""
    return lambda *above, **more: ours("seen").Seen(above=above, **more)


@pytest.fixture
def row_result(ours, row):
    return lambda name, *runs, **more: ours("scores").RowResult(row(name), cores=2, runs=list(runs), **more)


@pytest.mark.slow
def test_rows_are_recorded_cured_and_judged(tmp_path):
    out, page = tmp_path / "truth.json", tmp_path / "truth.md"
    line = [sys.executable, TRUTH / "truth.py", "--rows", "C10,HC1", "--repeats", "1", "--pairs", "1"]
    line += ["--json", out, "--markdown", page]
    done = subprocess.run(
        line, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    sick, healthy = json.loads(out.read_text())["rows"]

    assert sick["failed"] is None
    assert sick["right"] == 1
    assert len(sick["predicted"]) == 3
    assert sick["measured"] == pytest.approx(1 - sick["after"][0] / sick["before"][0])
    assert healthy["failed"] is None
    assert len(healthy["runs"]) == 1
    assert healthy["measured"] is None
    assert re.search(r"\| C10 \| debug-apis-on \| debug-apis-on( \(scattered\))? \| 1 of 1 \|", page.read_text())
    assert all(name in done.stdout for name in BARS)


def test_every_row_names_an_existing_program_and_rules(ours):
    table = ours("table")

    assert len({each.id for each in table.ROWS}) == len(table.ROWS)
    for each in table.ROWS:
        assert (TRUTH / "rows" / f"{each.program}.py").is_file()
        assert set(each.order) <= RULES, each.id
        for pattern in each.absent:
            assert any(fnmatch(rule, pattern) for rule in RULES), f"{each.id}: {pattern}"


def test_findings_of_other_tools_map_to_existing_rules(ours):
    for means in ours("peers").MEANS.values():
        for rules in means.values():
            assert set(rules) <= RULES


def test_no_module_is_named_like_a_standard_library_module():
    """They are in their script's folder: torch would import them."""
    assert not {path.stem for path in TRUTH.rglob("*.py")} & sys.stdlib_module_names


@pytest.mark.parametrize(
    ("name", "above", "hit"),
    [
        ("C01", ("data-workers-zero", "host-logging"), True),
        ("C01", ("host-logging", "data-workers-zero"), False),
        ("C01", (), False),
        ("C01+C07", ("data-workers-zero", "host-logging"), True),
        ("C01+C07", ("data-workers-zero",), False),
        ("HC1", (), True),
        ("HC1", ("batch-raise",), False),
    ],
)
def test_row_is_right_if_its_fault_comes_first_or_healthy_run_gets_no_advice(ours, row, said, name, above, hit):
    assert ours("seen").is_hit(row(name), said(*above)) is hit


@pytest.mark.parametrize(
    ("name", "seen", "cores", "found"),
    [
        ("C01", {"above": ("data-workers-zero", "precision-bf16", "zero-1-2")}, 2, ["precision-bf16", "zero-1-2"]),
        ("C01", {"above": ("data-workers-zero", "host-logging")}, 2, []),
        ("HC1", {"above": ("batch-raise",)}, 2, ["batch-raise"]),
        ("C03", {"above": ("data-workers-zero",), "workers": 4}, 4, ["4 workers"]),
        ("C03", {"above": ("data-workers-zero",), "workers": 3}, 4, []),
    ],
)
def test_forbidden_advice_above_info_is_reported(ours, row, name, seen, cores, found):
    assert ours("seen").forbidden(row(name), ours("seen").Seen(**seen), cores) == found


RESULT = {
    "advice": [
        {
            "rule": "data-workers-zero",
            "severity": "action",
            "title": "Load in workers",
            "gain": {"step_time_removed": {"low": 0.5, "expected": 0.8, "high": 0.9}},
            "change": [{"code": "DataLoader(\n    dataset,\n    num_workers=5,  # was 0\n    prefetch_factor=2,\n)"}],
        },
        {"rule": "debug-apis-on", "severity": "suggest", "title": "Off", "gain": None, "change": []},
        {"rule": "window-too-short", "severity": "info", "title": "Longer", "gain": None, "change": []},
        {"rule": "host-logging", "severity": "info", "title": "Log", "gain": None, "change": []},
    ]
}


def test_advice_held_back_by_scattered_steps_is_judged_by_order(ours, row, said):
    is_hit, below = ours("seen").is_hit, {"below": ("data-workers-zero",)}

    assert is_hit(row("C01"), said(**below, scattered=True))
    assert not is_hit(row("C01"), said(**below))
    assert not is_hit(row("C01"), said("host-logging", **below, scattered=True))
    assert is_hit(row("HC1"), said(**below, scattered=True))


def test_result_is_read_with_the_settings_of_the_cure(ours):
    seen = ours("recording").seen(RESULT)

    assert seen.above == ("data-workers-zero", "debug-apis-on")
    assert seen.below == ("host-logging",)
    assert seen.scattered
    assert seen.gains == {"data-workers-zero": (0.5, 0.8, 0.9)}
    assert seen.cure == ("--workers", "5", "--prefetch", "2")
    assert seen.workers == 5


def test_removed_step_time_uses_medians_and_is_compared_with_first_advice(row_result, said):
    run = said("data-workers-zero", gains={"data-workers-zero": (0.5, 0.8, 0.9), "host-logging": (0.0, 0.1, 0.2)})
    each = row_result("C01", run, before=[0.100, 0.110, 0.500], after=[0.011, 0.044, 0.010])

    assert each.measured == pytest.approx(0.9)
    assert each.predicted == (0.5, 0.8, 0.9)
    assert each.record.inside
    assert each.record.error == pytest.approx(0.1)


def test_wrong_advice_does_not_count_as_a_prediction(row_result, said):
    run = said("host-logging", gains={"host-logging": (0.5, 0.8, 0.9)})

    assert row_result("C01", run, before=[0.1], after=[0.01]).record is None


BARS = (
    "right advice comes first",
    "alarms in healthy runs",
    "runs with forbidden advice",
    "intervals that contain the measured gain",
    "median error of predictions",
)


def test_benchmark_bars_are_computed(ours, row_result, said):
    def right(name, rule, gain, before, after):
        return row_result(name, said(rule, gains={rule: gain}), before=[before], after=[after])

    rows = [
        right("C01", "data-workers-zero", (0.5, 0.8, 0.9), 0.1, 0.02),  # 0.8: inside, no error
        right("C07", "host-logging", (0.1, 0.3, 0.5), 0.1, 0.04),  # 0.6: outside, error 0.3
        row_result("C02", said("data-more-workers"), said("data-workers-oversubscribed")),
        row_result("HC1", said(), said()),
        row_result("HC2", said(), said("batch-raise")),
        row_result("C03", skipped="needs 4 cores"),
    ]
    found = {bar.name: (bar.value, bar.of, bar.verdict) for bar in ours("scores").bars(rows)}

    assert found == dict(
        zip(
            BARS,
            (
                (pytest.approx(0.75), 4, "missed"),
                (1, 4, "missed"),
                (2, 8, "missed"),
                (pytest.approx(0.5), 2, "missed"),
                (pytest.approx(0.15), 2, "missed"),
            ),
            strict=True,
        )
    )


def test_every_row_runs_once_before_any_runs_twice(ours, row, said, monkeypatch, tmp_path):
    truth, turns = ours("truth"), []
    answers = {"C01": said("data-workers-zero", gains={"data-workers-zero": (0.8, 0.85, 0.9)}, cure=("--workers", "5"))}

    def record(each, folder):
        turns.append(each.id)
        return answers.get(each.id, said())

    def step_time(each, words, folder):
        turns.append(f"{each.id} cured" if words else f"{each.id} plain")
        return 0.01 if words else 0.1

    monkeypatch.setattr(truth, "record", record)
    monkeypatch.setattr(truth, "step_time", step_time)
    rows = [row("C01"), row("C02"), row("HC1"), row("HC1 cnn-32")]
    bench = truth.Bench(rows, truth.Plan(sick=2, healthy=3, pairs=2, minutes=1), tmp_path)
    bench.run()

    assert turns[:6] == ["C01", "C01 plain", "C01 cured", "C02", "HC1", "HC1 cnn-32"]  # C02's advice was wrong
    assert turns[6:8] == ["HC1", "HC1"]
    assert turns[8:10] == ["C01 cured", "C01 plain"]
    assert sorted(turns[10:]) == ["C01", "C02", "HC1 cnn-32", "HC1 cnn-32"]
    assert bench.results[0].measured == pytest.approx(0.9)


def test_cheapest_rows_run_first_from_the_second_turn_on(ours, row, tmp_path):
    truth = ours("truth")
    bench = truth.Bench([row("C09"), row("C01"), row("HC1")], truth.FULL, tmp_path)
    for each, seconds in zip(bench.results, (40.0, 9.0, 5.0), strict=True):
        each.seconds = seconds

    assert [each.row.id for each in bench._cheap_first()] == ["HC1", "C01", "C09"]


def test_benchmark_ignores_calibration_of_this_machine(ours):
    assert ours("recording").ALONE["PROFILE_TRAIN_CALIBRATION"] == "/dev/null"


def test_bar_without_data_is_not_measured(ours):
    assert {bar.verdict for bar in ours("scores").bars([])} == {"not measured"}


def test_a_skipped_row_says_why_and_has_no_figures(ours, row_result):
    cells = ours("tables").row_cells(row_result("C03", skipped="needs 4 cores; this machine has 2"))

    assert cells == ("C03", "data-workers-zero", "skipped: needs 4 cores; this machine has 2", "", "", "", "")


@pytest.mark.parametrize(
    ("patterns", "rows"), [("C01,HC1", ["C01", "HC1"]), ("C1? gpt-32", ["C10 gpt-32"]), ("X*", [])]
)
def test_rows_are_chosen_by_patterns(ours, patterns, rows):
    assert [each.id for each in ours("truth").chosen(patterns, quick=False)] == rows


def test_coarse_finding_of_another_tool_is_right_if_it_covers_the_rule(ours, row):
    seen = ours("peers")._seen("traceml-ai", row("C13"), [("INPUT_BOUND", True), ("COMPUTE_BOUND", False)])
    wrong = ours("peers")._seen("traceml-ai", row("C07"), [("INPUT_BOUND", True)])

    assert seen.above == ("data-io-format",)
    assert wrong.above == ("data-workers-zero",)


def test_benchmark_includes_the_gpu_rows_of_the_tests(ours):
    from gpu_truth import ROWS

    rows = ours("fixtures").results(cores=2)
    assert len(rows) == len(ROWS)
    assert [bar.verdict for bar in ours("scores").bars(rows)[:3]] == ["pass"] * 3
