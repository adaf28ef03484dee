"""`profile-train export`: where each format goes, and the messages about what cannot be exported."""

import errno
import json
import os
import re
import stat
from pathlib import Path

import pytest
from programs import COMMAND, TRAINS, wait_until

from advisor.cli import main
from profiler.schema import Process, Run, Step
from profiler.store import Writer


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write a run of 50 steps, as the recorder leaves it."""
    monkeypatch.chdir(tmp_path)
    writer = Writer(tmp_path / "run", "h")
    machine = {"cores": 2.0, "cores_total": 2, "memory_total": 2**30, "platform": "Linux", "python": "3.11"}
    program = {"command": ("train.py",), "cwd": "/", "host": "h", "started_at": 1.7e9, "outcome": "completed"}
    writer.add(Run(id="r", version="0.1.0", duration=6.0, exit_status=0, **program, **machine))
    writer.add(Process(pid=1, started=0.5))
    writer.add(*[Step(pid=1, index=i, start=1 + i / 10, duration=0.1, forward=0.05, backward=0.05) for i in range(50)])
    writer.close()
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("form", "place"), [("chrome", "timeline.json.gz"), ("csv", "csv/steps.csv"), ("parquet", "parquet/steps.parquet")]
)
def test_export_is_written_to_run_folder_unless_out_is_given(folder, form, place, capsys):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    assert main(["export", "run", "--to", form]) == 0
    assert main(["export", "run", "--to", form, "--out", "elsewhere"]) == 0

    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"profile-train: run/{place.partition('/')[0]} is written." in captured.err
    assert stat.S_IMODE((folder / place).stat().st_mode) == 0o600
    assert os.path.exists("elsewhere")
    assert not [name for name in os.listdir(".") if name.startswith(".")], "nothing half written stays"


def test_prometheus_goes_to_stdout(folder, capsys):
    pytest.importorskip("prometheus_client")
    assert main(["export", "run", "--to", "prometheus"]) == 0

    assert 'profile_train_step_seconds_count{node="h",rank="0",run="run"} 50.0' in capsys.readouterr().out


def test_otel_requires_endpoint_or_out(folder, capsys, monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    assert main(["export", "run", "--to", "otel"]) == 1
    assert main(["export", "run", "--to", "otel", "--out", "run.jsonl"]) == 0

    assert "Set OTEL_EXPORTER_OTLP_ENDPOINT" in capsys.readouterr().err
    assert "resourceSpans" in json.loads(Path("run.jsonl").read_text().splitlines()[0])


def test_export_applies_configuration(folder, capsys):
    """Checked with a metric that needs a declaration."""
    Path("config.toml").write_text("[goals]\nqueue_share = 0.2\n")
    assert main(["export", "run", "--to", "csv", "--config", "config.toml"]) == 0

    assert re.search(r"^queue_share,0\.2,", (folder / "csv" / "metrics.csv").read_text(), re.MULTILINE)


def test_folder_that_is_not_a_run_gives_message_and_remedy(folder, capsys):
    Path("trace.json").write_text('{"traceEvents": []}')
    os.mkdir("empty")
    os.mkdir("foreign")
    Path("foreign/run-x.db").write_text("not ours " * 100)
    for given, message in [
        ("gone", "There is no folder gone"),
        ("empty", "empty contains no recording"),
        ("trace.json", "trace.json is a file"),
        ("foreign", "foreign/run-x.db"),
    ]:
        assert main(["export", given, "--to", "chrome", "--out", "out.json"]) == 1
        stderr = capsys.readouterr().err
        assert message in stderr
        assert len(stderr.splitlines()) == 2, "a message and a remedy"
    assert not os.path.exists("out.json")


def test_unreadable_node_is_reported_and_skipped(folder, capsys):
    (folder / "run-torn.db").write_bytes(b"")
    assert main(["export", "run", "--to", "csv"]) == 0

    assert "run-torn.db" in capsys.readouterr().err
    assert (folder / "csv" / "steps.csv").read_text().count("\n") == 51


def test_unwritable_output_is_reported(folder, capsys):
    Path("file").touch()
    assert main(["export", "run", "--to", "csv", "--out", "file/within"]) == 1
    assert main(["export", "run", "--to", "chrome", "--out", "run"]) == 1

    stderr = capsys.readouterr().err
    assert "file/within/runs.csv" in stderr
    assert os.strerror(errno.EISDIR) in stderr
    assert "--out" in stderr


@pytest.mark.parametrize(
    "words", [["--to", "csv", "--every", "5"], ["--to", "prometheus", "--every", "5"], ["--to", "svg"]]
)
def test_usage_error_exits_with_2(folder, words, capsys):
    assert main(["export", "run", *words]) == 2


def test_a_file_is_kept_up_to_date_while_the_run_goes_on(script, start_profiled, start, tmp_path):
    pytest.importorskip("prometheus_client")
    program = script(
        TRAINS
        + """
import pathlib
while not pathlib.Path("enough").exists():
    train(20)
"""
    )
    running = start_profiled(program, out=tmp_path / "now")
    running.wait_for("20 ")
    file = tmp_path / "metrics" / "train.prom"

    def begun():
        return list((tmp_path / "now").glob("run-*.db"))

    wait_until(begun, "a recording")
    keeping = start(*COMMAND, "export", tmp_path / "now", "--to", "prometheus", "--every", "1", "--out", file)

    def steps():
        if not file.exists():
            return 0
        text = file.read_text()
        assert text.endswith("\n"), "never half a file"
        found = re.search(r"step_seconds_count\{.*?\} (\S+)", text)
        return float(found[1]) if found else 0

    first = wait_until(steps, "steps in the file")
    wait_until(lambda: steps() > first, "more of them")
    assert 'profile_train_run_active{run="now"} 1.0' in file.read_text()
    (tmp_path / "enough").touch()
    running.finish()
    ran = keeping.finish()

    assert ran.status == 0, ran.err
    assert 'profile_train_run_active{run="now"} 0.0' in file.read_text()
    assert 'profile_train_run_exit_status{run="now"} 0.0' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644, "the collector is another user"
    assert os.listdir(file.parent) == ["train.prom"]
