"""The acceptance run of benchmarks/gpu on a machine without a GPU: it says so, and writes its files."""

import json
import os
import signal
import sys
from contextlib import suppress

import pytest
import torch
from benchmarked import imports
from programs import ROOT


@pytest.mark.skipif(torch.cuda.is_available(), reason="checks what a machine without a GPU shows")
def test_item_that_also_fails_without_us_gets_no_verdict(start, tmp_path):
    command = (sys.executable, ROOT / "benchmarks" / "gpu" / "accept.py", "--out", tmp_path / "out")
    ran = start(*command, "--dry", "--only", "graph").finish()
    assert ran.status == 0
    found = json.loads((tmp_path / "out" / "accept.json").read_text())
    assert [row["verdict"] for row in found["rows"]] == ["-"]  # it also fails without us
    assert (tmp_path / "out" / "table.md").is_file()
    assert (tmp_path / "out" / "runs.tar.gz").is_file()


@pytest.fixture
def accept():
    with imports("gpu") as name:
        accept = name("accept")
        before = {number: signal.getsignal(number) for number in accept.SIGNALS}
        yield accept
        for number, handler in before.items():
            signal.signal(number, handler)


def test_results_before_a_failure_or_signal_are_kept(accept, monkeypatch, tmp_path):
    def fails(bench):
        (bench.runs / "one").mkdir()
        (bench.runs / "one" / "result.json").write_text("{}")
        yield accept.Row("first", "1", "1", True)
        raise accept.Failed("no time left")

    def killed(bench):
        yield accept.Row("second", "2")
        os.kill(os.getpid(), signal.SIGTERM)
        yield accept.Row("third", "3")

    items = [accept.checks.Item(name, 1, check) for name, check in (("a", fails), ("b", killed), ("c", fails))]
    monkeypatch.setattr(accept.checks, "ITEMS", items)
    monkeypatch.setattr(sys, "argv", ["accept.py", "--out", str(tmp_path / "out")])

    with suppress(SystemExit):
        assert accept.main() == 1

    found = json.loads((tmp_path / "out" / "accept.json").read_text())
    assert [(row["item"], row["verdict"]) for row in found["rows"]] == [
        ("first", "pass"), ("a", "FAIL"), ("second", "-"), ("b", "-"),
    ]  # fmt: skip
    # Everything to carry back from a borrowed machine: recordings are elsewhere, packed into one file.
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["accept.json", "runs.tar.gz", "table.md"]
