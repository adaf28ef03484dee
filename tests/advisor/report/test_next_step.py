"""The one thing to do after a report."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from golden_report import altered, golden

from advisor.judging.verdict import Verdict
from advisor.report.next_step import next_step
from advisor.report.report import Recommendation, Report
from advisor.rules.base import Intervention, Safety, Severity
from advisor.verify.kept import Verified

SCRIPT = "from torch.utils.data import DataLoader\nloader = DataLoader(photos)\n"


def advised(
    folder: Path, verdict: Verdict | None = None, name: str = "loader", safety: Safety = Safety.EXACT
) -> Report:
    """Return the golden report with its first advice on a script in the folder."""
    (folder / "train.py").write_text(SCRIPT)
    change = Intervention(
        name=name, settings={"file": str(folder / "train.py"), "line": 2, "num_workers": 2}, safety=safety
    )
    tried = verdict and Verified(rule="r", verdict=verdict, predicted=None, removed=(0.1, 0.2, 0.3))
    report = golden()
    (first, *others) = report.advice
    first = altered(first, intervention=change, verified=tried)
    rest: list[Recommendation] = [altered(item, severity=Severity.INFO, in_plan=None) for item in others]
    run = replace(report.run, command=("train.py",), cwd=str(folder))
    return replace(report, advice=(first, *rest), run=run)


def test_advice_that_can_be_tried_is_tried_first(tmp_path: Path) -> None:
    step = next_step(advised(tmp_path, safety=Safety.NUMERICS), None)
    assert (step.do, step.rule) == ("verify", golden().advice[0].rule)
    assert step.command[:4] == ("profile-train", "verify", "RUN", step.rule)
    assert step.command[4:6] == ("--allow", "numerics")
    assert step.patch is not None
    assert "+loader = DataLoader(photos, num_workers=2)\n" in step.patch
    assert step.folder == str(tmp_path.resolve())


@pytest.mark.parametrize(
    ("verdict", "do"),
    [
        (Verdict.CONFIRMED, "apply"),
        (Verdict.PARTIAL, "apply"),
        (Verdict.INCONCLUSIVE, "verify"),
        (Verdict.FAILED, "change"),
    ],
)
def test_next_step_depends_on_trial_verdict(verdict: Verdict, do: str, tmp_path: Path) -> None:
    assert next_step(advised(tmp_path, verdict), None).do == do


def test_refuted_advice_is_not_next_step(tmp_path: Path) -> None:
    step = next_step(advised(tmp_path, Verdict.REFUTED), None)
    assert step.do in ("look", "stop")
    assert step.rule is None


def test_change_without_patch_gives_reason(tmp_path: Path) -> None:
    step = next_step(advised(tmp_path, name="autocast"), None)
    assert (step.do, step.patch) == ("verify", None)
    assert step.no_patch


def test_file_changed_since_run_or_containing_secret_gets_no_patch(tmp_path: Path) -> None:
    report = advised(tmp_path)
    assert next_step(report, os.stat(tmp_path / "train.py").st_mtime - 1).patch is None
    assert next_step(report, os.stat(tmp_path / "train.py").st_mtime + 1).patch is not None
    (tmp_path / "train.py").write_text(f'{SCRIPT}api_key = "0123456789abcdef"\n')
    assert next_step(report, None).patch is None


def test_traces_cannot_be_run_again(tmp_path: Path) -> None:
    assert next_step(replace(advised(tmp_path), imported=True), None).do == "change"
