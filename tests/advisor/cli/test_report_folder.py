"""`profile-train report` on a folder of traces, as torch.profiler leaves them."""

import json
import os
from pathlib import Path

import jsonschema
import pytest
from traces_made import GEMM, GPU, Made

from advisor.cli import main

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "result.schema.json").read_text())


@pytest.fixture
def traced(tmp_path, monkeypatch):
    """Write a trace into ./log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").mkdir()

    def write(name, rank=None, length=100):
        about = {"distributedInfo": {"rank": rank, "world_size": 2}} if rank is not None else {}
        made = Made(deviceProperties=[GPU], **about)
        for number in range(12):
            at = length * number
            made.step(number, at, at + length)
            made.gpu(GEMM, at + 20, at + 70, (at + 10, at + 12))
        return made.write(tmp_path / "log" / name)

    return write


def report_json(capsys, *words):
    assert main(["report", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_all_traces_of_a_folder_are_the_ranks_of_one_run(traced, capsys):
    traced("host_11.1700000000000000000.pt.trace.json", rank=1)
    traced("host_10.1700000000000000001.pt.trace.json.gz", rank=0)
    Path("log/settings.json").write_text('{"lr": 0.1}')
    Path("log/list.json").write_text("[1, 2]")
    report = report_json(capsys, "log", "--json")

    assert report["run"]["ranks"] == 2
    assert report["run"]["command"] == [
        "host_10.1700000000000000001.pt.trace.json.gz",
        "host_11.1700000000000000000.pt.trace.json",
    ]


@pytest.mark.parametrize("name", ["trace.json", "rank0.json.gz"])
def test_a_trace_of_any_name_is_found(traced, name, capsys):
    traced(name)

    assert report_json(capsys, "log", "--json")["steps"]["time_s"]["mean"] == pytest.approx(100e-6)


def test_last_trace_of_each_process_is_used(traced, capsys):
    for saved, length in ((9, 500), (10, 100)):
        traced(f"host_10.17000000000000000{saved:02}.pt.trace.json", rank=0, length=length)
    assert main(["report", "log", "--json"]) == 0

    printed = capsys.readouterr()
    assert json.loads(printed.out)["steps"]["time_s"]["mean"] == pytest.approx(100e-6)
    assert "1 earlier one." in printed.err


def test_damaged_trace_does_not_prevent_report_on_others(traced, capsys):
    traced("a_1.1700000000000000000.pt.trace.json", rank=0)
    Path("log/b_2.1700000000000000000.pt.trace.json").write_text("{")
    report = report_json(capsys, "log", "--json")

    assert report["run"]["ranks"] == 1


def test_report_is_not_written_next_to_traces(traced, capsys):
    traced("trace.json")
    assert main(["report", "log", "--no-summary"]) == 0

    assert os.listdir("log") == ["trace.json"]
    assert os.path.exists("profile-train-runs/log/report.html")


def test_folder_without_recording_or_trace_is_error(traced, capsys):
    Path("log/settings.json").write_text('{"lr": 0.1}')
    assert main(["report", "log"]) == 1

    assert capsys.readouterr().err.startswith("profile-train: log ")


def test_exported_timeline_does_not_replace_recording(traced, capsys):
    traced("timeline.json")
    Path("log/run-h.db").touch()
    assert main(["report", "log"]) == 1

    assert "run-h.db" in capsys.readouterr().err


def test_report_against_another_trace_includes_comparison(traced, capsys):
    before, after = str(traced("before.json", length=100)), str(traced("after.json", length=200))
    found = report_json(capsys, after, "--against", before, "--json")

    jsonschema.validate(found, SCHEMA)
    work = found["against"]["operators"]
    assert work["before"] == pytest.approx(work["after"])
    assert found["against"]["steps"][0]["change"]["estimate"] == pytest.approx(1, abs=0.2)
    assert "against" not in report_json(capsys, after, "--json")
    assert main(["report", after, "--against", before, "--out", "made"]) == 0
    assert 'id="against"' in Path("made/report.html").read_text()
    assert main(["compare", before, after, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == found["against"]
