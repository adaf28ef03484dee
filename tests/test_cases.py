"""Every rule by its cases: each case a test, and no rule without all three kinds."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from harness import Blind, Case, Fires, Silent

from advisor.metrics.base import Metrics, Missing, Threshold
from advisor.rules import all_rules
from advisor.rules.base import Rule
from advisor.testing import judged
from profiler.agent import interventions

CASES = Path(__file__).parent / "cases"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"cases_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def case_file(rule: Rule) -> Path:
    return CASES / f"{rule.id.replace('-', '_')}.py"


def cases(rule: Rule) -> list[Case]:
    return load(case_file(rule)).CASES if case_file(rule).exists() else []


every_case = [
    pytest.param(rule, case, id=f"{rule.id}: {case.sentence}") for rule in all_rules() for case in cases(rule)
]
every_rule = [pytest.param(rule, id=rule.id) for rule in all_rules()]


@pytest.mark.parametrize(("rule", "case"), every_case)
def test_case(rule: Rule, case: Case):
    case.check(rule)


@pytest.mark.parametrize("rule", every_rule)
def test_every_limit_a_rule_reads_can_be_set(rule: Rule, monkeypatch: pytest.MonkeyPatch):
    """For it, or for a rule that it asks in turn: a limit that only a module of shared things has is out of reach."""
    read: set[Threshold] = set()
    get = Metrics.__getitem__

    def noted(self: Metrics, key: Any) -> Any:
        if isinstance(key, Threshold):
            read.add(key)
        return get(self, key)

    monkeypatch.setattr(Metrics, "__getitem__", noted)
    for case in cases(rule):
        with contextlib.suppress(Missing):
            judged(rule, case.metrics)
    assert read <= {threshold for every in all_rules() for threshold in every.thresholds.values()}


@pytest.mark.parametrize("rule", every_rule)
def test_every_rule_has_a_case_of_each_kind(rule: Rule):
    missing = {kind.__name__ for kind in (Fires, Silent, Blind)} - {type(case).__name__ for case in cases(rule)}
    assert not missing, f"add to tests/cases/{case_file(rule).name}: {', '.join(sorted(missing))}"


@pytest.mark.parametrize("rule", every_rule)
def test_every_rule_says_what_why_and_when_it_is_wrong(rule: Rule):
    what, why, *rest = rule.page.strip().split("\n\n")
    assert what.endswith(".")
    assert why
    assert any(paragraph.startswith("Wrong when: ") for paragraph in rest)
    assert rule.title[0].isupper()
    assert not rule.title.endswith(".")
    assert rule.sources


@pytest.mark.parametrize("rule", every_rule)
def test_when_and_then_read_as_one_sentence(rule: Rule):
    assert (rule.when.__doc__ or "").startswith("If ")
    assert (rule.then.__doc__ or "").startswith("then ")
    assert (rule.then.__doc__ or "").strip().endswith(".")


@pytest.mark.parametrize(("rule", "case"), every_case)
def test_what_is_tried_can_be_made(rule: Rule, case: Case):
    """There is such a change, with such settings, and they can be told to another process."""
    if isinstance(case, Fires) and (found := judged(rule, case.metrics)) and (change := found[1].intervention):
        assert json.loads(json.dumps(change.settings)) == change.settings
        module = importlib.import_module(f"{interventions.__name__}.{change.name}")
        getattr(module, interventions._CLASSES[change.name])(**change.settings)


def test_every_case_file_belongs_to_a_rule():
    assert {path.name for path in CASES.glob("*.py")} <= {case_file(rule).name for rule in all_rules()}
