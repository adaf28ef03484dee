"""The command `profile-train compare`."""

import json
import sqlite3
from html.parser import HTMLParser
from pathlib import Path

import pytest

from advisor.cli import main
from profiler.schema import Process, Run, Step
from profiler.store import Writer, find

SHAPE = (0.97, 1.0, 1.03, 1.0, 0.98, 1.02, 1.0)


@pytest.fixture
def recorded(tmp_path):
    """Write a run of steps that take `step` seconds."""

    def write(name, step=0.1, number=140, words=("train.py",)):
        folder = tmp_path / name
        folder.mkdir()
        writer = Writer(folder, "h")
        writer.add(
            Run(
                id=name,
                command=words,
                cwd="/",
                host="h",
                started_at=1.7e9,
                duration=60.0,
                outcome="completed",
                cores=2.0,
                cores_total=2,
                memory_total=2**30,
                platform="Linux",
                python="3.11",
                version="0.1.0",
            )
        )
        writer.add(Process(pid=1, started=0.5))
        times = [step * SHAPE[i % len(SHAPE)] for i in range(number)]
        writer.add(
            *[
                Step(pid=1, index=i, start=i * step, duration=time, forward=time / 2, backward=time / 2)
                for i, time in enumerate(times)
            ]
        )
        writer.close()
        return str(folder)

    return write


@pytest.fixture
def compare(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words, status=0):
        assert main(["compare", *words]) == status
        return capsys.readouterr()

    return call


def test_it_fits_80_columns(recorded, compare):
    assert max(map(len, compare(recorded("a"), recorded("b", 0.12)).out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("step", "limit", "status"),
    [(0.12, "5%", 3), (0.12, "25%", 0), (0.102, "5%", 0), (0.08, "5%", 0)],
)
def test_exit_status_says_whether_run_is_slower_than_limit(recorded, compare, step, limit, status):
    compare(recorded("a"), recorded("b", step), "--fail-if-slower", limit, status=status)


def test_too_few_steps_exit_with_4(recorded, compare):
    compare(recorded("a"), recorded("b", number=39), "--fail-if-slower", "5%", status=4)


def test_slower_run_exits_with_0_without_limit(recorded, compare):
    compare(recorded("a"), recorded("b", 0.2))


def test_all_formats_state_same_verdict(recorded, compare, tmp_path):
    a, b = recorded("a"), recorded("b", 0.12)
    made = {}
    for ending in ("md", "html", "json", "txt"):
        compare(a, b, "--out", str(tmp_path / f"x.{ending}"))
        made[ending] = (tmp_path / f"x.{ending}").read_text()

    assert json.loads(made["json"])["verdict"] == "worse"
    start = made["txt"].strip().partition(":")[0]
    assert made["md"].startswith(f"# {start}:")
    assert f"<h1>{start}:" in made["html"]


def test_markup_in_recorded_command_is_escaped(recorded, compare):
    attack = "<script>alert(1)</script>.py"
    a, b = recorded("a", words=(attack,)), recorded("b", words=("\x1b[31m[bold]x",))

    page = compare(a, b, "--format", "html").out
    seen = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _attributes: seen.append(tag)
    parser.feed(page)

    assert "script" not in seen
    assert "\x1b" not in compare(a, b).out
    assert "[bold]x" in compare(a, b).out
    assert attack not in compare(a, b, "--format", "markdown").out


def test_newer_and_damaged_stores_are_reported(recorded, compare):
    a, newer, torn = recorded("a"), recorded("newer"), recorded("torn")
    (path,) = find(Path(newer))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    (path,) = find(Path(torn))
    path.write_bytes(b"x" * 5000)

    assert "newer" in compare(a, newer, status=1).err
    assert "torn" in compare(a, torn, status=1).err
