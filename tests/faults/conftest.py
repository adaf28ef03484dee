"""Programs that train a little before something breaks, and the report that the user gets."""

import io
import json

import pytest
from rich.console import Console

from advisor.publish import publish
from advisor.report.render.terminal import summarize


@pytest.fixture
def check_report():
    """Return a function that makes the report of a run, asserts that terminal, report.md and result.json contain these
    sentences and everything that the sources in `shown` reported, and returns result.json's `run`."""

    def check(ran, *sentences, shown=()):
        terminal = Console(file=io.StringIO(), width=80)
        summarize(publish(ran.folder), ran.folder, terminal)
        result = json.loads((ran.folder / "result.json").read_text())
        problems = "\n".join(problem["message"] for problem in result["environment"]["problems"])
        page = _flat((ran.folder / "report.md").read_text().replace("\\", ""))
        for sentence in (*sentences, *(message for source in shown for message in ran.problems[source])):
            assert sentence in problems
            assert sentence in page
            assert sentence in _flat(terminal.file.getvalue())
        assert set(shown) <= set(ran.problems)
        return result["run"]

    return check


def _flat(text):
    return " ".join(text.split())
