"""Check every rule by its cases: each case is a subtest, and no rule is without all three kinds."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from harness import Case, DoesNotFire, Fires, NotMeasured, given

from advisor.cli import main
from advisor.cli.rules import CASES as CASES_TEMPLATE
from advisor.cli.rules import RULE as RULE_TEMPLATE
from advisor.metrics.base import Metrics, Missing, Threshold
from advisor.metrics.step import other_fraction
from advisor.rules import all_rules
from advisor.rules.base import Rule
from advisor.settings import own_rules
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


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_rule(rule: Rule, subtests: pytest.Subtests):
    found = cases(rule)

    assert "TODO" not in case_file(rule).read_text() + inspect.getsource(inspect.getmodule(rule.when))
    missing = {kind.__name__ for kind in (Fires, DoesNotFire, NotMeasured)} - {type(case).__name__ for case in found}
    assert not missing, f"add to tests/cases/{case_file(rule).name}: {', '.join(sorted(missing))}"
    for case in found:
        with subtests.test(case.sentence):
            case.check(rule)
        with subtests.test(f"{case.sentence}: the change can be made"):
            can_be_made(rule, case)


def can_be_made(rule: Rule, case: Case) -> None:
    """Check that the intervention exists and accepts these settings, and that they survive JSON."""
    if isinstance(case, Fires) and (found := judged(rule, case.metrics)) and (change := found[1].intervention):
        assert json.loads(json.dumps(change.settings)) == change.settings
        inspect.signature(interventions.change_of(change.name)).bind(None, **change.settings)


def test_every_threshold_read_by_a_rule_can_be_set(subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch):
    """For this rule, or for a rule that it asks in turn: a limit that only a shared module has cannot be set."""
    read: set[Threshold] = set()
    get = Metrics.__getitem__

    def noted(self: Metrics, key: Any) -> Any:
        if isinstance(key, Threshold):
            read.add(key)
        return get(self, key)

    monkeypatch.setattr(Metrics, "__getitem__", noted)
    known = {threshold for rule in all_rules() for threshold in rule.thresholds.values()}
    for rule in all_rules():
        read.clear()
        for case in cases(rule):
            with contextlib.suppress(Missing):
                judged(rule, case.metrics)
        with subtests.test(rule.id):
            assert read <= known


def test_every_rule_says_what_why_and_when_it_is_wrong(subtests: pytest.Subtests):
    for rule in all_rules():
        with subtests.test(rule.id):
            says_it_all(rule)


def says_it_all(rule: Rule) -> None:
    what, why, *rest = rule.page.strip().split("\n\n")
    assert what.endswith(".")
    assert why
    assert any(paragraph.startswith("Wrong when: ") for paragraph in rest)
    assert rule.title[0].isupper()
    assert not rule.title.endswith(".")
    assert rule.sources
    assert (rule.when.__doc__ or "").startswith("If ")
    assert (rule.then.__doc__ or "").startswith("then ")
    assert (rule.then.__doc__ or "").strip().endswith(".")


def test_every_case_file_belongs_to_a_rule():
    assert {path.name for path in CASES.glob("[!_]*.py")} <= {case_file(rule).name for rule in all_rules()}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a checkout that has the templates of a rule and of its cases."""
    for template in (RULE_TEMPLATE, CASES_TEMPLATE):
        (tmp_path / template).parent.mkdir(parents=True)
        shutil.copyfile(CASES.parents[1] / template, tmp_path / template)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_new_rule_template_is_complete(checkout: Path):
    assert main(["rules", "new", "my-rule"]) == 0

    (rule,) = (one for one in own_rules.load(checkout / "advisor/rules/my_rule.py").rules if one.id == "my-rule")
    cases = load(checkout / "tests/cases/my_rule.py").CASES
    says_it_all(rule)
    assert [type(case) for case in cases] == [Fires, DoesNotFire, NotMeasured]
    for case in cases[:2]:
        with pytest.raises(Missing):
            case.check(rule)
    for case, share in zip(cases, (0.051, 0.049, None), strict=True):
        dataclasses.replace(case, metrics=given({} if share is None else {other_fraction: share})).check(rule)


@pytest.mark.parametrize("name", ["my-rule", "base", "_private", "My rule", "../escape"])
def test_new_rule_with_taken_or_invalid_name_is_refused(checkout: Path, name: str):
    for taken in ("my_rule", "base"):
        (checkout / f"advisor/rules/{taken}.py").touch()
    before = sorted(checkout.rglob("*"))

    assert main(["rules", "new", name]) == 1

    assert sorted(checkout.rglob("*")) == before


def test_a_new_rule_needs_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    assert main(["rules", "new", "my-rule"]) == 1

    assert not [*tmp_path.iterdir()]
