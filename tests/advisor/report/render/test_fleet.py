"""The page of a fleet: bounded in size, and text of a run never becomes markup."""

import json
import re

import pytest
from fleet_made import START, result, row, write

from advisor.fleet import engine
from advisor.fleet.dataset import import_runs, opened
from advisor.fleet.overview import overview
from advisor.report.render import fleet as rendered

pytest.importorskip("duckdb", reason="needs the extra `fleet`")

HOSTILE = "</script><script>window.owned = 1</script>\"'><img src=x onerror=alert(1)>"


def page(fleet):
    with opened(fleet, loaded=True) as connection:
        return rendered.page(overview(connection, price=1.0), "profile-train fleet")


def test_hostile_names_stay_text(tmp_path):
    hostile = {"user": HOSTILE, "project": HOSTILE, "command": (HOSTILE + ".py",), "outcome": "failed"}
    write(tmp_path / "runs/a", row(1, **hostile), result(outcome="failed"))
    write(tmp_path / "runs/b", row(2, **hostile), {"schema": HOSTILE})
    import_runs(tmp_path / "fleet", [str(tmp_path / "runs")])
    text = page(tmp_path / "fleet")
    assert "<img" not in text
    assert len(re.findall(r"<script\b", text)) == 3  # the data and the two scripts
    data = json.loads(re.search(r'id="fleet-data">(.*?)</script>', text)[1])
    assert data["names"]["user"] == [HOSTILE]


def test_the_page_has_rows_for_the_largest_only(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "FEW", 100)  # runs are read in this process
    for number in range(60):
        write(tmp_path / f"runs/{number}", row(number, user=f"user{number:02d}"), result(duration=60.0 + number))
    import_runs(tmp_path / "fleet", [str(tmp_path / "runs")])
    text = page(tmp_path / "fleet")
    assert text.count('<th scope="row">user') == 50


def test_runs_without_measurements_have_a_page(tmp_path):
    write(tmp_path / "runs/a", row(1, started_at=START), None)
    import_runs(tmp_path / "fleet", [str(tmp_path / "runs")])
    (runs,) = re.findall(r'<h1 data-runs="(\d+)"', page(tmp_path / "fleet"))
    assert runs == "0"
