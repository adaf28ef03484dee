"""From a run folder to the files of its report."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import jsonschema
import pytest
from golden_report import golden

from advisor import publish as module
from advisor.judging.calibration import Calibration, TrialResult
from advisor.judging.verdict import Verdict
from advisor.metrics.base import Goals
from advisor.publish import publish
from advisor.report.render import result_json
from advisor.report.render.tried import outcome
from advisor.report.wording import assumed, diagnosis
from advisor.runs.load import load
from advisor.verify import kept
from advisor.verify.kept import Verified
from profiler import ours
from profiler.errors import ProfilerError
from profiler.schema import Process, Run, Step
from profiler.store import Writer

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "result.schema.json").read_text())


@pytest.fixture
def folder(tmp_path):
    """Write a run of 50 steps, as the recorder leaves it."""
    writer = Writer(tmp_path, "h")
    writer.add(
        Run(
            id="r",
            command=("<script>alert(1)</script>.py",),
            cwd="/",
            host="h",
            started_at=1.7e9,
            cores=2.0,
            cores_total=2,
            memory_total=2**30,
            platform="Linux",
            python="3.11",
            version="0.1.0",
        )
    )
    writer.add(Process(pid=1, started=0.5))
    writer.add(*[Step(pid=1, index=i, start=1 + i / 10, duration=0.1, forward=0.05, backward=0.05) for i in range(50)])
    writer.close()
    return tmp_path


def test_it_writes_all_three_forms(folder):
    report = publish(folder)

    assert (folder / "result.json").read_text() == result_json.render(report)
    assert diagnosis(report) in (folder / "report.html").read_text()
    assert (folder / "report.md").read_text().startswith(f"# {diagnosis(report)}")
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == [ours.LIST]


def test_all_formats_state_assumptions(folder):
    report = publish(folder)

    for name in ("report.html", "report.md", "result.json"):
        assert assumed(report) in (folder / name).read_text()


def test_result_of_unfinished_run_validates_against_schema(folder):
    publish(folder)

    result = json.loads((folder / "result.json").read_text())
    jsonschema.validate(result, SCHEMA)
    assert result["run"]["ended"] == "running"


def test_trial_result_is_shown_with_its_advice(folder):
    """`goal-undefined` is advice that every run gets."""
    tried = Verified(
        rule="goal-undefined",
        verdict=Verdict.PARTIAL,
        predicted=(0.1, 0.2, 0.3),
        removed=(0.01, 0.04, 0.07),
        seconds=(0.1, 0.096),
        steps=120,
        processes=3,
    )
    kept.write(folder, {tried.rule: tried})
    publish(folder)

    result = json.loads((folder / "result.json").read_text())
    jsonschema.validate(result, SCHEMA)
    (advice,) = (each for each in result["advice"] if each["rule"] == "goal-undefined")
    assert advice["verified"] == {
        "verdict": "partial",
        "predicted": {"low": 0.1, "expected": 0.2, "high": 0.3},
        "step_time_removed": {"low": 0.01, "expected": 0.04, "high": 0.07},
        "step_time_s": {"before": 0.1, "after": 0.096},
        "memory_bytes": None,
        "losses_agree": None,
        "steps": 120,
        "processes": 3,
        "why": "",
        "not_tried": "",
    }
    for name in ("report.html", "report.md"):
        assert outcome(tried) in (folder / name).read_text()


def test_track_record_of_rule_is_shown_with_its_advice(folder):
    tried = TrialResult(
        rule="goal-undefined", verdict=Verdict.PARTIAL, predicted=(0.1, 0.2, 0.3), removed=(0.01, 0.04, 0.07)
    )
    publish(folder, past=Calibration((tried,)))

    result = json.loads((folder / "result.json").read_text())
    jsonschema.validate(result, SCHEMA)
    record = "Tried before on 1 program: 1 partial. "
    assert [advice["past"][: len(record)] for advice in result["advice"] if advice["rule"] == "goal-undefined"] == [
        record
    ]
    for name in ("report.html", "report.md"):
        assert record in (folder / name).read_text()


def test_damaged_trials_file_is_reported_as_a_problem(folder):
    (folder / kept.FILE).write_text("{")
    publish(folder)

    result = json.loads((folder / "result.json").read_text())
    assert [note["source"] for note in result["environment"]["problems"]] == ["verify"]
    assert kept.FILE in (folder / "report.html").read_text()


def test_a_script_with_a_hostile_name_is_escaped(folder):
    publish(folder)

    assert "<script>alert(1)" not in (folder / "report.html").read_text()


def test_republishing_replaces_only_own_unmodified_files(folder):
    (folder / "result.json").write_text('{"acc": 0.93}')
    publish(folder)
    first = {name: ours.listed(folder, name) for name in ("result.json", "report.html", "report.md")}
    (folder / "report.md").write_text("edited")
    publish(folder, Goals(gpu_price=2.0))

    assert (folder / "result.json").read_text() == '{"acc": 0.93}'
    assert (folder / "report.md").read_text() == "edited"
    assert ours.listed(folder, "result.json") == first["result.json"] != folder / "result.json"
    assert ours.listed(folder, "report.html") == first["report.html"] == folder / "report.html"
    assert ours.listed(folder, "report.md") != first["report.md"]


def refuse(monkeypatch, name):
    """Refuse to replace the file `name`, as a full disk does."""

    def replace(source, target):
        if target.name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.rename(source, target)

    monkeypatch.setattr("advisor.atomic_write.os.replace", replace)


def test_write_failure_is_reported_and_leaves_no_temporary_files(folder, monkeypatch):
    refuse(monkeypatch, "report.html")

    with pytest.raises(ProfilerError, match=r"report\.html could not be written"):
        publish(folder)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [ours.LIST]


def test_unwritable_format_does_not_prevent_others(folder, monkeypatch):
    refuse(monkeypatch, "report.html")

    with pytest.raises(ProfilerError, match=r"report\.html") as caught:
        publish(folder)
    assert f"profile-train report {folder} --out" in caught.value.remedy
    assert (folder / "result.json").exists()
    assert (folder / "report.md").exists()


def test_report_can_be_written_to_another_folder(folder, tmp_path):
    module.write(module.report_of(load(folder), folder), tmp_path / "new" / "place", "a command")

    assert sorted(path.name for path in (tmp_path / "new" / "place").iterdir()) == [
        ours.LIST,
        "report.html",
        "report.md",
        "result.json",
    ]
    assert not (folder / "result.json").exists()


def test_a_form_that_fails_leaves_the_old_files(folder, monkeypatch):
    publish(folder)
    before = (folder / "result.json").read_text()

    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(module.markdown, "render", fail)
    monkeypatch.setattr(module, "report_of", lambda *_, **__: golden())
    with pytest.raises(RuntimeError):
        publish(folder)
    assert (folder / "result.json").read_text() == before


def test_a_folder_without_a_recording_is_an_error(tmp_path):
    with pytest.raises(ProfilerError):
        publish(tmp_path)
