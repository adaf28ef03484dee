"""From traces to a profile and a report, in every form."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from profiles import metrics
from snapshots import same, scenes
from traces_made import GEMM, GPU, KERNEL, Made, two_ranks

from advisor.cli import main
from advisor.judging.judge import judge
from advisor.metrics.base import Metrics, Need
from advisor.metrics.communication import straggler_skew
from advisor.metrics.gpu import device, gpu_busy_fraction, tensor_core_fraction
from advisor.metrics.hardware import gpu_utilization
from advisor.metrics.step import data_wait_fraction, gc_fraction, step_time_mean
from advisor.publish import report_of
from advisor.report.build import build_report
from advisor.report.render import html, markdown, result_json, view
from advisor.report.render.view import NOTABLE
from advisor.runs.traces import load, traced
from advisor.runs.traces import load as load_traces
from profiler.errors import ProfilerError
from profiler.importers import several

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "result.schema.json").read_text())
EVIL = "<script>alert(1)</script>{{ 7*7 }}`__import__('os')` \x1b[31m"


def loop(steps: int = 30, **about) -> Made:
    """Return steps of 100 us, of which the GPU computes 60 us."""
    made = Made(deviceProperties=[GPU], **about)
    for number in range(steps):
        at = 100 * number
        made.step(number, at, at + 100)
        made.gpu(GEMM, at + 20, at + 70, (at + 10, at + 12))
        made.gpu(KERNEL, at + 70, at + 80, (at + 13, at + 14))
    return made


def test_metrics_are_answered_from_a_trace_or_missing(tmp_path):
    profile = load([loop().write(tmp_path / "t.json")])
    m = Metrics(profile)

    assert m[step_time_mean] == pytest.approx(100e-6)
    assert m[gpu_busy_fraction] == pytest.approx(0.6)
    assert m[tensor_core_fraction] == pytest.approx(5 / 6)
    assert m[device].name == GPU["name"]
    for absent in (data_wait_fraction, gc_fraction, gpu_utilization, straggler_skew):
        assert m.get(absent) is None


def test_a_report_on_a_trace(tmp_path):
    report = report_of(load_traces([loop().write(tmp_path / "t.json")]))
    (one,) = report.traces

    assert (one.fact.steps, one.fact.seconds) == (29, pytest.approx(29 * 100e-6))
    assert {part.name: round(part.share, 3) for part in one.parts if part.seconds} == {
        "compute": 0.6,
        "idle_launch": 0.4,
    }
    assert {kind.name: round(kind.share, 3) for kind in one.kinds} == {"matmul": 0.833, "elementwise": 0.167}
    assert one.tensor_cores == pytest.approx(5 / 6)
    result = json.loads(result_json.render(report))
    jsonschema.validate(result, SCHEMA)
    assert sum(result["traces"][0]["time"].values()) == pytest.approx(1)
    assert not report.checks("crashed")


def test_distinguishes_ranks_and_their_waiting_time(tmp_path):
    report = report_of(load_traces(two_ranks(tmp_path)[::-1]))

    assert [one.rank for one in report.traces] == [0, 1]
    assert [one.fact.exchanges[0].waited for one in report.traces] == [pytest.approx(20e-6), 0.0]
    jsonschema.validate(json.loads(result_json.render(report)), SCHEMA)


def test_recorded_window_is_shown_like_imported_trace(tmp_path):
    theirs = load(two_ranks(tmp_path)).ranks[0]
    shaped = replace(theirs.traces[0], id=1, shapes=True)  # slower than the steps, so it is not the one to show
    ours = metrics(replace(theirs, traces=(shaped, *theirs.traces)))

    report = build_report(ours.profile, judge(ours), ours)

    assert report.traces == (traced(theirs),)
    assert report.traces[0].fact.exchanges
    assert not report.imported
    assert json.loads(result_json.render(report))["traces"][0]["collectives"]
    (critical, *_) = view.traced_facts(report.traces[0])
    assert all(link.label in critical for link in report.traces[0].critical if link.share >= NOTABLE)
    for made in (html.render(report), markdown.render(report)):
        assert critical in made.replace("\\", "")


def test_traces_with_same_rank_are_renumbered(tmp_path):
    paths = [loop(distributedInfo={"rank": 0}).write(tmp_path / name) for name in ("a.json", "b.json")]
    profile = load(paths)

    assert [(one.rank, one.fact.file) for one in map(traced, profile.ranks)] == [(0, "a.json"), (1, "b.json")]
    assert len(profile.problems) == 1


def test_unreadable_trace_does_not_hide_others(tmp_path):
    (tmp_path / "bad.json").write_text("no trace")
    profile = load([tmp_path / "bad.json", loop().write(tmp_path / "good.json")])

    assert [one.fact.file for one in map(traced, profile.ranks)] == ["good.json"]
    (problem,) = profile.problems
    assert "bad.json" in problem.message


@pytest.mark.process
def test_reading_in_separate_processes_gives_same_result(tmp_path, monkeypatch):
    (tmp_path / "bad.json").write_text("no trace")
    paths = [*two_ranks(tmp_path), tmp_path / "bad.json"]
    alone = load(paths)

    monkeypatch.setattr(several, "LARGE", 0)
    monkeypatch.setattr(several, "_cores", lambda: 2)

    assert load(paths) == alone


def test_no_readable_trace_is_an_error(tmp_path):
    (tmp_path / "bad.json").write_text("no trace")

    with pytest.raises(ProfilerError, match=r"is not a torch\.profiler trace"):
        load([tmp_path / "bad.json"])


def without_marks() -> Made:
    made = Made()
    made.gpu(GEMM, 0, 50, (0, 1))
    made.gpu(GEMM, 60, 100, (58, 59))
    return made


def test_trace_without_step_marks_is_used_as_a_whole(tmp_path):
    report = report_of(load_traces([without_marks().write(tmp_path / "t.json")]))

    assert report.steps is None
    assert report.traces[0].fact.steps is None


@pytest.mark.parametrize("about", [{}, {"deviceProperties": []}], ids=["with the GPU's name", "without the GPU's name"])
def test_no_rule_asks_for_gpu_if_trace_has_gpu_work(tmp_path, about):
    made = loop()
    made.about.update(about)
    report = report_of(load_traces([made.write(tmp_path / "t.json")]))

    needs = {check.need for check in report.checks("not_measured")}
    assert Need.RUN in needs
    assert Need.GPU not in needs


def on_a_cpu() -> Made:
    made = Made()
    for number in range(3):
        made.step(number, 100 * number, 100 * number + 100)
        made.host("aten::mm", 100 * number, 100 * number + 50)
    return made


def test_cpu_trace_has_no_breakdown_rather_than_zeros(tmp_path):
    report = report_of(load_traces([on_a_cpu().write(tmp_path / "t.json")]))
    result = result_json.result(report)

    assert (result["traces"][0]["time"], result["traces"][0]["communication_overlap"]) == (None, None)
    assert "value" not in result["metrics"]["gpu_busy_fraction"]
    jsonschema.validate(json.loads(json.dumps(result)), SCHEMA)


def test_snapshot_of_traces(tmp_path):
    made = {"one GPU": loop(), "no steps": without_marks(), "a CPU": on_a_cpu()}
    paths = {name: [one.write(tmp_path / f"{name}.json")] for name, one in made.items()}
    paths["two ranks"] = two_ranks(tmp_path)
    texts = {name: markdown.render(report_of(load_traces(given))) for name, given in paths.items()}
    same("traces.md", scenes({name: text.partition("\n## What to change")[0] for name, text in texts.items()}))


@pytest.mark.parametrize(("gap", "single"), [(9_000, False), (20_000, True)])
def test_single_gap_that_dominates_idle_time(tmp_path, gap, single):
    made = Made()
    made.gpu(GEMM, 0, 100, (0, 1))
    made.gpu(GEMM, 100 + gap, 200 + gap, (99 + gap, 100 + gap))
    report = report_of(load_traces([made.write(tmp_path / "t.json")]))

    assert (report.traces[0].single_gap is not None) is single


def test_untrusted_text_of_trace_is_escaped(tmp_path):
    made = loop(distributedInfo={"rank": 0, "world_size": 2, "backend": EVIL})
    made.about["deviceProperties"] = [{**GPU, "name": EVIL}]
    named = {"Collective name": EVIL, "Group size": 2, "Process Group Description": EVIL, "dtype": EVIL}
    made.gpu(f"nccl{EVIL}Kernel", 2950, 2960, (2920, 2921), **named)
    made.gpu(EVIL, 2960, 2970, (2922, 2923))
    path = made.write(tmp_path / "<img src=x onerror=alert(1)>.json")
    report = report_of(load_traces([path]))

    page = html.render(report)
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    assert "{{ 7*7 }}" in page
    text = markdown.render(report)
    assert "<script>" not in text.replace("`", "\0").split("\0")[0]
    assert "\x1b" not in page + text + result_json.render(report)


def test_the_command_takes_files_and_writes_all_forms(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = two_ranks(tmp_path)

    assert main(["report", *map(str, paths)]) == 0

    made = tmp_path / "profile-train-runs" / "trace_0"
    assert sorted(path.name for path in made.glob("re*")) == ["report.html", "report.md", "result.json"]
    stderr = capsys.readouterr().err
    assert "Communication" in stderr


def test_the_command_prints_json_alone(tmp_path, capsys):
    path = loop().write(tmp_path / "t.json")

    assert main(["report", "--json", str(path)]) == 0

    jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMA)
    assert [one.name for one in tmp_path.iterdir()] == ["t.json"]


def test_file_that_is_not_a_trace_gives_short_message(tmp_path, capsys):
    path = tmp_path / "notes.txt"
    path.write_text("hello")

    assert main(["report", str(path)]) == 1

    stderr = capsys.readouterr().err
    assert stderr.startswith(f"profile-train: {path} ")
    assert "export_chrome_trace" in stderr
    assert "Traceback" not in stderr


def test_a_truncated_trace_still_gives_a_report_that_says_so(tmp_path, capsys):
    path = tmp_path / "t.json"
    path.write_text(loop().text()[:-4000])

    assert main(["report", str(path), "--out", str(tmp_path / "out")]) == 0

    (problem,) = json.loads((tmp_path / "out" / "result.json").read_text())["environment"]["problems"]
    assert path.name in problem["message"]
    assert path.name in capsys.readouterr().err


@pytest.mark.parametrize("words", [["none.json"], ["report.html"], [".", "t.json"]])
def test_input_that_is_neither_run_nor_traces_is_usage_error(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    for name in ("report.html", "t.json"):
        (tmp_path / name).write_text("")

    assert main(["report", *words]) == 2
    assert "folder" in capsys.readouterr().err
