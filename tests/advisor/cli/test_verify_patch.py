"""`verify --patch` writes the first confirmed change that a line of the script can hold, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from advisor.cli.verify import write_patch
from advisor.judging.verdict import Verdict
from advisor.rules.base import Intervention, Safety
from advisor.verify import kept
from advisor.verify.kept import Verified

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "verified.schema.json").read_text())


def session(folder: Path, **verdicts: tuple[str, Verdict]) -> Any:
    """Return a session with trials of these interventions, by rule."""
    (folder / "train.py").write_text("from torch.utils.data import DataLoader\nloader = DataLoader(photos)\n")
    tried, candidates = {}, []
    for rule, (name, verdict) in verdicts.items():
        settings = {"file": str(folder / "train.py"), "line": 2, "num_workers": 2}
        change = Intervention(name=name, settings=settings, safety=Safety.EXACT)
        tried[rule] = Verified(rule=rule, verdict=verdict, predicted=None, removed=(0.1, 0.2, 0.3), seconds=(2.0, 1.6))
        candidates.append(SimpleNamespace(rule=SimpleNamespace(id=rule), change=change))
    kept.write(folder, tried)
    program = SimpleNamespace(words=("train.py",), cwd=str(folder))
    return SimpleNamespace(folder=folder, candidates=candidates, trials=SimpleNamespace(program=program))


def test_the_confirmed_change_is_written(tmp_path: Path) -> None:
    file = tmp_path / "change.patch"
    made = session(tmp_path, other=("loader", Verdict.REFUTED), workers=("loader", Verdict.CONFIRMED))
    said = write_patch(made, file)
    assert f"git apply {file}" in said
    assert b"+loader = DataLoader(photos, num_workers=2)\n" in file.read_bytes()
    jsonschema.validate(json.loads((tmp_path / kept.FILE).read_text()), SCHEMA)


@pytest.mark.parametrize(
    "verdicts",
    [
        {"workers": ("loader", Verdict.REFUTED)},
        {"workers": ("loader", Verdict.INCONCLUSIVE)},
        {"precision": ("autocast", Verdict.CONFIRMED)},
    ],
)
def test_no_patch_without_confirmed_writable_change(verdicts: dict[str, tuple[str, Verdict]], tmp_path: Path) -> None:
    file = tmp_path / "change.patch"
    assert "not written" in write_patch(session(tmp_path, **verdicts), file)
    assert not file.exists()
