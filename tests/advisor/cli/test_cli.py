"""The command line: what is a command, what is a program, and where each word goes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import click
import pytest
from programs import COMMAND

from advisor import cli
from advisor.cli import main
from advisor.metrics.step import data_wait_fraction
from advisor.rules import all_rules
from profiler.errors import ProfilerError


@pytest.fixture
def ran(monkeypatch):
    """Return a list of the words that would have been run, with the value of --out."""
    words: list[tuple[str | None, tuple[str, ...]]] = []

    @click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
    @click.option("--out")
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def run(out, rest):
        words.append((out, rest))

    module = type("module", (), {"run": run})
    original = cli.importlib.import_module
    monkeypatch.setattr(
        cli.importlib, "import_module", lambda name: module if name == "advisor.cli.run" else original(name)
    )
    return words


@pytest.mark.parametrize(
    ("argv", "out", "rest"),
    [
        (["train.py"], None, ("train.py",)),
        (["train.py", "--out", "x", "--help", "--", "-h"], None, ("train.py", "--out", "x", "--help", "--", "-h")),
        (["--out", "x", "train.py", "--version"], "x", ("train.py", "--version")),
        (["-m", "pkg.train", "--lr", "1"], None, ("-m", "pkg.train", "--lr", "1")),
        (["torchrun", "--nproc-per-node", "2", "t.py"], None, ("torchrun", "--nproc-per-node", "2", "t.py")),
        (["run", "report", "x"], None, ("report", "x")),
        (["--out", "x", "report"], "x", ("report",)),
        (["report.py", "report"], None, ("report.py", "report")),
        (["./rules"], None, ("./rules",)),
    ],
)
def test_arguments_without_command_are_a_program(ran, argv, out, rest):
    assert main(argv) == 0
    assert ran == [(out, rest)]


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_help_fits_a_screen_and_has_an_example(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0

    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"^ +Examples?:.*\n? +profile-train ", text, flags=re.MULTILINE)


def test_help_points_to_options_of_run(capsys):
    assert main(["--help"]) == 0

    text = capsys.readouterr().out
    assert "profile-train train.py --lr 3e-4" in text
    assert "profile-train run --help" in text


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("profile-train ")


def test_rules_lists_every_rule_on_stdout(capsys):
    assert main(["rules"]) == 0

    captured = capsys.readouterr()
    assert all(rule.id in captured.out and rule.title in captured.out for rule in all_rules())
    assert max(map(len, captured.out.splitlines())) <= 100
    assert captured.err == ""


@pytest.mark.parametrize("name", ["optimizer-fused", "optimizer_fused"])
def test_explain_shows_if_then_limits_and_sources(capsys, name):
    assert main(["explain", name]) == 0

    text = capsys.readouterr().out
    for part in ("If ", "Then ", "Wrong when ", "min_fraction = 0.05", "https://docs.pytorch.org"):
        assert part in text


def test_explain_describes_metrics_too(capsys):
    assert main(["explain", "data_wait_fraction"]) == 0

    assert data_wait_fraction.label in " ".join(capsys.readouterr().out.split())


def test_unknown_rule_suggests_nearest_rule_without_traceback(capsys):
    assert main(["explain", "optimizer-fusd"]) == 1

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "optimizer-fused" in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("argv", [["explain"], ["report"], ["report", "/no/such/folder"], ["report", ".", "--wrong"]])
def test_usage_error_exits_with_2(capsys, argv):
    assert main(argv) == 2
    assert "Usage: profile-train" in capsys.readouterr().err


def test_file_instead_of_folder_suggests_its_folder(tmp_path, capsys):
    (tmp_path / "report.html").touch()

    assert main(["report", str(tmp_path / "report.html")]) == 2
    assert f"profile-train report {tmp_path}" in capsys.readouterr().err


def test_misspelled_command_suggests_command(capsys):
    assert main(["explian", "host-logging"]) == 1
    assert capsys.readouterr().err.endswith(": profile-train explain\n")


def test_missing_program_is_not_taken_for_misspelled_command(capsys):
    assert main(["no-such-program"]) == 1
    assert "explain" not in capsys.readouterr().err


def test_folder_without_recording_is_error_without_traceback(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_profiler_error_is_printed_with_remedy(monkeypatch, capsys):
    def explode(*_args, **_options):
        raise ProfilerError("It broke.", "Mend it.")

    monkeypatch.setattr("advisor.report.pages.explained", explode)

    assert main(["explain", "x"]) == 1
    assert capsys.readouterr().err == "profile-train: It broke.\nMend it.\n"


@pytest.mark.process
def test_nothing_heavy_is_imported_before_the_program_starts():
    """The program waits for these imports."""
    code = "import sys, json, advisor.cli, advisor.cli.run; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)

    heavy = {"torch", "numpy", "jinja2", "rich", "sqlite3", "advisor.report.report", "advisor.rules"}
    assert heavy & set(loaded) == set()


@pytest.mark.process
def test_nothing_heavy_is_imported_to_record(tmp_path):
    """Neither by the options' values before the program starts, nor at its end, without windows and report."""
    words = ("run", "--no-report", "--no-windows", "--out", tmp_path / "run", "true")
    ran = subprocess.run(
        [COMMAND[0], "-X", "importtime", *COMMAND[1:], *words], capture_output=True, check=True, text=True
    )
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}

    assert "profiler.recorder.record" in loaded
    assert {"torch", "numpy", "jinja2", "rich", "advisor.report.report", "advisor.rules"} & loaded == set()
