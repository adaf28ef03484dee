"""What shells offer when the user presses Tab, queried as shells do."""

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.metrics import all_metrics
from advisor.rules import all_rules
from advisor.settings.declared import GOALS

ROOT = Path(__file__).parents[3]
US = [sys.executable, "-c", "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main; main()", ROOT]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Make a script, another file, a run in the default folder, and a folder."""
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
    """Return what is offered for a line's last word; kinds that the shell itself completes are in angle brackets."""

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
        ("profile-train --wi", ["--windows"]),
        ("profile-train --out x --no-rep", ["--no-report"]),
        ("profile-train --out x tr", ["<file>"]),
        ("profile-train train.py --o", ["<file>"]),
        ("profile-train train.py --data d", ["<file>"]),
        ("profile-train tune train.py --o", ["<file>"]),
        ("profile-train verify r", ["<dir>"]),
        ("profile-train verify profile-train-runs/20260102", ["profile-train-runs/20260102-120000-train"]),
        ("profile-train report profile-train-runs/20260102", ["profile-train-runs/20260102-120000-train"]),
        ("profile-train verify run precision-b", ["precision-bf16"]),
        ("profile-train verify run host-logging data-workers-z", ["data-workers-zero"]),
        ("profile-train explain zero-1", ["zero-1-2"]),
        ("profile-train explain forward_", ["forward_fraction"]),
        ("profile-train --goal ", [*GOALS]),
        ("profile-train report --goal m", ["memory"]),
        ("profile-train report --validation tra", ["<file>"]),
        ("profile-train report tra", ["<file>"]),
        ("profile-train export run --to p", ["perfetto", "pprof", "parquet", "prometheus"]),
    ],
)
def test_completions_of_line(offered, line, completions):
    assert offered(line) == completions


def test_completes_runs_newest_first_and_all_rules(offered):
    assert [Path(run).name[:8] for run in offered("profile-train watch ")] == ["20260102", "20260101"]
    assert sorted(offered("profile-train explain ")) == sorted(rule.id for rule in all_rules())
    metrics = {metric.name for metric in all_metrics() if metric.name.startswith("d")}
    begun = offered("profile-train explain d")
    assert {name for name in begun if "-" not in name} == metrics


@pytest.mark.process
def test_completion_imports_nothing_heavy(here):
    asking = "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main\ntry: main()\nfinally:"
    command = [sys.executable, "-c", f"{asking} print(*sys.modules, sep='\\n', file=sys.stderr)", ROOT]
    for line in ("profile-train ", "profile-train verify run data-", "profile-train --goal t"):
        asked = {"_PROFILE_TRAIN_COMPLETE": "zsh_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        loaded = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
        assert {"torch", "numpy", "rich", "jinja2", "sqlite3"} & set(loaded.stderr.splitlines()) == set()


@pytest.fixture
def ours(here):
    """Return the environment of a shell that finds this checkout's profile-train and reads none of the user's files."""
    (here / "bin").mkdir()
    command = here / "bin" / "profile-train"
    start = f"import sys\nsys.path[0] = {str(ROOT)!r}\nfrom advisor.cli import main\nmain()"
    command.write_text(f"#!{sys.executable}\n{start}")
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(here), "XDG_CONFIG_HOME": str(here), "ZDOTDIR": str(here)}


def needs(shell):
    return pytest.mark.skipif(not shutil.which(shell), reason=f"needs {shell}")


@needs("bash")
@pytest.mark.process
def test_bash_completion(ours):
    script = """
        eval "$(_PROFILE_TRAIN_COMPLETE=bash_source profile-train)"
        compopt() { :; }  # there is no line being edited
        COMP_WORDS=(profile-train explain data-workers); COMP_CWORD=2
        _profile_train_completion profile-train
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script], env=ours, capture_output=True, text=True)
    assert done.stdout.split() == ["data-workers-oversubscribed", "data-workers-zero"], done.stderr


@needs("fish")
def test_fish_completion_shows_descriptions(here, ours):
    (here / "train,v2.py").touch()
    asking = [
        "_PROFILE_TRAIN_COMPLETE=fish_source profile-train | source",
        *(f"complete -C 'profile-train {line}'; echo" for line in ("doc", "train,", "watch p", "--no-rep", "x.py --")),
    ]
    done = subprocess.run(["fish", "--no-config", "-c", "\n".join(asking)], env=ours, capture_output=True, text=True)
    found = [part.partition("\t") for part in done.stdout.split("\n\n")]
    assert [word for word, *_ in found] == [
        "doctor",
        "train,v2.py",
        "profile-train-runs/20260101-120000-train\nprofile-train-runs/20260102-120000-train",
        "--no-report",
        "\n",
    ], done.stderr
    assert [bool(help) for *_, help in found] == [True, False, False, True, False]


ZSH = """
autoload -Uz compinit; compinit -D -u
eval "$(_PROFILE_TRAIN_COMPLETE=zsh_source profile-train)"
tab() { zle complete-word; print -r -- "<<$BUFFER>>"; zle kill-whole-line }
zle -N tab; bindkey '^I' tab
print READ''Y
"""


@needs("zsh")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("ver", "verify "),
        ("explain data-workers-z", "explain data-workers-zero "),
        ("verify run precision-b", "verify run precision-bf16 "),
        ("--no-rep", "--no-report "),
        ("watch p", "watch profile-train-runs/2026010"),
        ("watch profile-train-runs/20260102", "watch profile-train-runs/20260102-120000-train "),
        ("report tra", "report tra"),
        ("report trac", "report trace.json "),
        ("train.py --o", "train.py --o"),
    ],
)
def test_zsh_completion(ours, line, completed):
    """Runs in a terminal, because zsh's completion needs its line editor."""
    terminal, inner = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inner)
    environment = ours | {"TERM": "dumb", "PS1": ""}
    shell = subprocess.Popen(["zsh", "-f", "-i"], env=environment, **streams, start_new_session=True)
    os.close(inner)
    try:
        os.write(terminal, ZSH.encode())
        said(terminal, b"READY")
        os.write(terminal, f"profile-train {line}\t".encode())
        assert said(terminal, b">>").rpartition(b"<<")[2] == f"profile-train {completed}>>".encode()
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


def said(terminal, last):
    """Return the terminal's output up to `last`."""
    text = b""
    while last not in text:
        assert select.select([terminal], [], [], 60)[0], text
        text += os.read(terminal, 4096)
    return text.partition(last)[0] + last


@pytest.mark.process
def test_every_shell_gets_a_script():
    for shell in ("bash", "zsh", "fish"):
        asked = {"_PROFILE_TRAIN_COMPLETE": f"{shell}_source"}
        done = subprocess.run(US, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
        assert "_profile_train_completion" in done.stdout
