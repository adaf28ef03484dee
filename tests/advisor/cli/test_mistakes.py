"""What users get wrong ends in a sentence that says what to do, and in a status that is not 0."""

import contextlib
import io
import os
import shutil
import sqlite3

import pytest

from advisor.cli import main
from profiler.schema import Run
from profiler.store import Writer


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a run, and things that are none."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name in ("run", "damaged", "emptied", "newer", "folder"):
        (folder / name).mkdir()
    writer = Writer(folder / "run", "h")
    about = {"cores": 2.0, "cores_total": 2, "memory_total": 2**30, "platform": "Linux", "python": "3.11"}
    writer.put(Run(id="r", command=("train.py",), cwd="/", host="h", started_at=1.7e9, version="0.1.0", **about))
    writer.close()
    shutil.copy(folder / "run" / "run-h.db", folder / "newer")
    with contextlib.closing(sqlite3.connect(folder / "newer" / "run-h.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    (folder / "damaged" / "run-h.db").write_bytes(b"no store" * 1000)
    (folder / "bad.toml").write_text("[goals")
    (folder / "misspelt.toml").write_text("[goals]\ngaol = 'memory'")
    (folder / "notes.txt").write_text("hello")
    for name in ("emptied/run-h.db", "trace.json", "train.py"):
        (folder / name).touch()
    return folder


@pytest.fixture(autouse=True)
def _here(prepared, monkeypatch):
    monkeypatch.chdir(prepared)


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("gone.py", 1, "There is no script 'gone.py' here. Check the path."),
        ("folder", 1, "'folder' is a folder without a __main__.py. Name the script in it."),
        ("gone", 1, "There is no script and no command 'gone'. Check the name, or activate its environment."),
        ("-m", 1, "-m needs a module. Try: profile-train -m package.module"),
        ("run", 2, "There is nothing to run. Try: profile-train train.py"),
        ("--outt x train.py", 2, "Did you mean "),
        ("--goal speed train.py", 2, "'speed' is no goal. Write one of throughput, memory, cost, latency."),
        ("--config bad.toml train.py", 1, "bad.toml is no TOML: "),
        ("--config misspelt.toml train.py", 1, "misspelt.toml: goals.gaol is not known. Did you mean goal?"),
        ("report folder", 1, "folder holds neither a recording nor traces. Give the folder that a run "),
        ("report gone", 2, "There is no folder or file gone. Give the run's folder"),
        ("report damaged", 1, "damaged/run-h.db is damaged, nothing of it can be read"),
        ("report emptied", 1, "emptied/run-h.db is empty: the recorder ended before it could write. Record the run"),
        ("report newer", 1, "(schema 99); this one knows schema"),
        ("report trace.json", 1, "trace.json is no trace of torch.profiler: it is empty. Give the JSON "),
        ("report notes.txt", 1, "notes.txt is no trace of torch.profiler: it is no JSON. Give the JSON "),
        ("report run --out /proc/x", 1, "/proc/x/result.json could not be written: "),
        ("compare run run --out /proc/x.html", 1, "/proc/x.html could not be written: "),
        (
            "compare run folder",
            1,
            "folder holds no recording. Give the folder that a run of profile-train has written.",
        ),
        ("watch", 1, "There is no run in profile-train-runs. Start one, or name its folder: profile-train watch RUN"),
        (
            "explain data-worker-zero",
            1,
            "No rule or metric is called 'data-worker-zero'. Did you mean data-workers-zero",
        ),
        ("verify run data-worker-zero", 1, "There is no rule 'data-worker-zero'. Did you mean data-workers-zero?"),
        ("merge run run --out both", 1, "There is nothing to join. Name two different run folders"),
        ("attach 4194305", 1, "There is no process 4194305. Name the PID of a training process: ps "),
        (f"report {'long' * 100}", 1, "File name too long. Check the path and its permissions."),
    ],
)
def test_a_mistake_is_told_with_its_remedy(capsys, line, status, told):
    assert main(line.split()) == status

    err = " ".join(capsys.readouterr().err.split())
    assert told in err
    assert "Traceback" not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_what_may_not_be_read_is_told(tmp_path, capsys):
    tmp_path.chmod(0)
    try:
        assert main(["report", f"{tmp_path}/run"]) == 1
    finally:
        tmp_path.chmod(0o700)
    assert f"{tmp_path}/run: Permission denied.\nCheck the path and its permissions.\n" in capsys.readouterr().err


def test_without_an_answer_nothing_is_run(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    assert main(["tune", "train.py"]) == 1
    assert "Nothing was run, because nobody answered.\nTo go on without asking: --yes\n" in capsys.readouterr().err
