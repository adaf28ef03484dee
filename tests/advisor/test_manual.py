"""Generated documents are complete, and up to date in the repository."""

from pathlib import Path

import pytest

from advisor.manual import documents, meanings, table
from advisor.metrics import all_metrics
from profiler.schema import Run

ROOT = Path(__file__).parents[2]
DOCUMENTS = documents(ROOT)


@pytest.mark.parametrize(("path", "text"), DOCUMENTS.items(), ids=DOCUMENTS)
def test_generated_documents_are_up_to_date(path, text):
    """If this fails: python -m advisor.manual"""
    assert text == (ROOT / path).read_text(encoding="utf-8")


def test_table_cell_escapes_pipes():
    assert table(["A", "B"], [["a|b", "c"]]) == "| A | B |\n| --- | --- |\n| a\\|b | c |"


def test_every_metric_has_a_row():
    rows = DOCUMENTS["docs/metrics.md"].splitlines()

    assert sorted(row.split("`")[1] for row in rows if row.startswith("| `")) == [m.name for m in all_metrics()]
    assert "## Step" in rows


def test_store_fields_are_documented_by_docstrings():
    said = meanings(Run)
    assert said["started_at"]
    assert f"| `started_at` | `float` | {said['started_at']} |" in DOCUMENTS["docs/store.md"]
