"""What the shell is told at the press of Tab, asked as shells ask."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.rules import all_rules

ROOT = Path(__file__).parents[3]
US = [sys.executable, "-c", "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main; main()", ROOT]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A script, another file, a run in the default folder, a folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "trace.json").touch()
    for name in ("20260101-120000-train", "20260102-120000-train"):
        (tmp_path / "profile-train-runs" / name).mkdir(parents=True)
        (tmp_path / "profile-train-runs" / name / "run-h.db").touch()
    (tmp_path / "profile-train-runs" / "empty").mkdir()
    return tmp_path


@pytest.fixture
def offered(here, monkeypatch, capsys):
    """What is, for the word that a line ends in; kinds that the shell completes by itself in angle brackets."""

    def ask(line):
        monkeypatch.setenv("_PROFILE_TRAIN_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        with pytest.raises(SystemExit):
            main([])
        kinds = [answer.split(",", 1) for answer in capsys.readouterr().out.splitlines()]
        return [value if kind == "plain" else f"<{kind}>" for kind, value in kinds]

    return ask


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("profile-train tr", ["train.py"]),
        ("profile-train t", ["tune", "train.py"]),
        ("profile-train ver", ["verify"]),
        ("profile-train trac", ["<file>"]),
        ("profile-train --vers", ["--version"]),
        ("profile-train --wi", ["--windows", "--with"]),
        ("profile-train --out x --no-rep", ["--no-report"]),
        ("profile-train --out x tr", ["<file>"]),
        ("profile-train train.py --o", ["<file>"]),
        ("profile-train train.py --data d", ["<file>"]),
        ("profile-train tune train.py --o", ["<file>"]),
        ("profile-train verify r", ["<dir>"]),
        ("profile-train verify profile-train-runs/20260102", ["<dir>", "profile-train-runs/20260102-120000-train"]),
        ("profile-train verify run precision-b", ["precision-bf16"]),
        ("profile-train verify run host-logging data-workers-z", ["data-workers-zero"]),
        ("profile-train explain zero-1", ["zero-1-2"]),
        ("profile-train report tra", ["<file>"]),
        ("profile-train export run --to p", ["parquet", "prometheus"]),
    ],
)
def test_what_is_offered(offered, line, completions):
    assert offered(line) == completions


def test_runs_are_offered_newest_first_and_rules_all(offered):
    assert [Path(run).name[:8] for run in offered("profile-train watch ")] == ["<dir>", "20260102", "20260101"]
    assert sorted(offered("profile-train explain ")) == sorted(rule.id for rule in all_rules())


def test_nothing_heavy_is_imported_for_it(here):
    asking = "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main\ntry: main()\nfinally:"
    command = [sys.executable, "-c", f"{asking} print(*sys.modules, sep='\\n', file=sys.stderr)", ROOT]
    for line in ("profile-train ", "profile-train verify run data-"):
        asked = {"_PROFILE_TRAIN_COMPLETE": "zsh_complete", "COMP_WORDS": line, "COMP_CWORD": "1"}
        loaded = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
        assert {"torch", "numpy", "rich", "bokeh", "jinja2", "sqlite3"} & set(loaded.stderr.splitlines()) == set()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_by_it(here):
    (here / "bin").mkdir()
    command = here / "bin" / "profile-train"
    start = f"import sys\nsys.path[0] = {str(ROOT)!r}\nfrom advisor.cli import main\nmain()"
    command.write_text(f"#!{sys.executable}\n{start}")
    command.chmod(0o755)
    script = """
        eval "$(_PROFILE_TRAIN_COMPLETE=bash_source profile-train)"
        compopt() { :; }  # there is no line being edited
        COMP_WORDS=(profile-train explain data-workers); COMP_CWORD=2
        _profile_train_completion profile-train
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = f"{command.parent}:{os.environ['PATH']}"
    told = subprocess.run(["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert told.stdout.split() == ["data-workers-oversubscribed", "data-workers-zero"], told.stderr


def test_every_shell_gets_a_script():
    for shell in ("bash", "zsh", "fish"):
        asked = {"_PROFILE_TRAIN_COMPLETE": f"{shell}_source"}
        told = subprocess.run(US, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
        assert "_profile_train_completion" in told.stdout
