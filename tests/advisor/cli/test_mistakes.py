"""A user's mistake ends with a message that says what to do, and with a status other than 0."""

import contextlib
import errno
import io
import os
import sqlite3

import pytest
from snapshots import same, scenes

from advisor.cli import main
from profiler.schema import Run
from profiler.store import Writer

MISTAKES = (
    "gone.py",
    "folder",
    "gone",
    "-m",
    "run",
    "run -- --out train.py",
    "--goal speed train.py",
    "--config bad.toml train.py",
    "--config misspelled.toml train.py",
    "report folder",
    "report gone",
    "report damaged",
    "report emptied",
    "report newer",
    "report trace.json",
    "report notes.txt",
    "report bad.html",
    "report run --quality good",
    "report run --mtbf 7200",
    "report run --spot-discount 65",
    "report run --target-batch none",
    "compare run run",
    "compare run folder",
    "compare run other --fail-if-slower five",
    "report run --out /proc/x",
    "plan --params 1.5B --gpu-memory 24GB --out /proc/x.html",
    "attach abc",
    "attach 4194305",
    "watch",
    "explian host-logging",
    "explain data-worker-zero",
    "verify run data-worker-zero",
    "verify run --allow numeric",
    "merge run run --out both",
    "export gone --to chrome",
    "export folder --to chrome",
    "export trace.json --to chrome",
    "export run --to csv --out train.py/within",
    "plan --params 1.5B --gpus 8",
    "tune train.py",
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Make a folder with a run, and with things that are not runs."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name in ("run", "other", "damaged", "emptied", "newer", "folder"):
        (folder / name).mkdir()
    about = {"cores": 2.0, "cores_total": 2, "memory_total": 2**30, "platform": "Linux", "python": "3.11"}
    for name in ("run", "other", "newer"):
        writer = Writer(folder / name, "h")
        writer.add(Run(id=name, command=("train.py",), cwd="/", host="h", started_at=1.7e9, version="0.1.0", **about))
        writer.close()
    with contextlib.closing(sqlite3.connect(folder / "newer" / "run-h.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    (folder / "damaged" / "run-h.db").write_bytes(b"no store" * 1000)
    (folder / "bad.toml").write_text("[goals")
    (folder / "misspelled.toml").write_text("[goals]\ngaol = 'memory'")
    (folder / "notes.txt").write_text("hello")
    for name in ("emptied/run-h.db", "trace.json", "train.py", "bad.html"):
        (folder / name).touch()
    return folder


@pytest.fixture(autouse=True)
def _here(prepared, monkeypatch):
    monkeypatch.chdir(prepared)


@pytest.mark.parametrize("line", ["--outt x train.py", "report run --config missing.toml", f"report {'long' * 100}"])
def test_errors_of_click_and_os_show_no_traceback(capsys, line):
    assert main(line.split()) in (1, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_snapshot_of_mistakes(prepared, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))  # nobody answers
    texts = {}
    for line in MISTAKES:
        status = main(line.split())
        assert status in (1, 2), line
        err = capsys.readouterr().err
        shown = [text for text in err.splitlines() if not text.startswith(("Usage:", "Try 'profile-train"))]
        texts[f"profile-train {line}: {status}"] = "\n".join(shown).replace(str(prepared), "...")
    same("mistakes.txt", scenes(texts))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_unreadable_path_is_reported(tmp_path, capsys):
    tmp_path.chmod(0)
    try:
        assert main(["report", f"{tmp_path}/run"]) == 1
    finally:
        tmp_path.chmod(0o700)
    assert f"{tmp_path}/run: {os.strerror(errno.EACCES)}.\n" in capsys.readouterr().err
