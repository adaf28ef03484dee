"""The user's own rules: found, checked as ours are, and harmless if they are broken."""

import sys
from importlib.metadata import EntryPoint

import pytest

from advisor.judging.judge import Outcome, judge
from advisor.metrics.base import Metrics
from advisor.metrics.step import step_time_mean
from advisor.rules import all_rules
from advisor.rules.base import Source
from advisor.settings import own_rules
from advisor.settings.config import configure
from profiler.errors import ProfilerError

RULE = '''"""Steps are long.

A rule of a team.

Source: Ours, about steps, https://example.org/steps
Source: A book
"""

from advisor.metrics.base import Threshold
from advisor.metrics.step import step_time_mean
from advisor.rules.base import Advice, Change, Confidence, Evidence, Measurement, Rule, Area

MOST = Threshold(1.0, "Longer steps are of no use to us.")


def when(m):
    """If a step takes more than a second,"""
    time = m[step_time_mean]
    return Evidence((Measurement(step_time_mean, time, m[MOST], ">"),)) if time > m[MOST] else None


def then(m, found):
    """then ask the team."""
    return Advice(then="Ask.", changes=(Change(language="text", code="ask"),), basis="None.", risk="None.")


RULE = Rule(
    title="Ask", area=Area.MODEL, confidence=Confidence.HEURISTIC, difficulty=1, sources=()
)
'''


def ids(found: own_rules.RuleSet) -> set[str]:
    return {rule.id for rule in found.rules} - {rule.id for rule in all_rules()}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "long_steps.py").write_text(RULE)
    return tmp_path


def test_rules_are_loaded_from_folder_or_file(folder):
    (folder / "very_long_steps.py").write_text(RULE)

    assert ids(own_rules.load(folder)) == {"long-steps", "very-long-steps"}
    assert ids(own_rules.load(folder / "long_steps.py")) == {"long-steps"}
    assert ids(own_rules.load()) == set()


def test_own_rule_has_page_sources_and_limits(folder):
    (rule,) = (rule for rule in own_rules.load(folder).rules if rule.id == "long-steps")

    assert rule.page.strip() == RULE.split('"""')[1].partition("\n\nSource")[0]
    assert rule.sources == (Source("Ours, about steps", "https://example.org/steps"), Source("A book"))
    assert rule.in_force == {"most": 1.0}


def test_files_that_begin_with_an_underscore_are_shared(folder):
    (folder / "_limits.py").write_text("from advisor.metrics.base import Threshold\nMOST = Threshold(2.0, 'ours')\n")
    (folder / "shared.py").write_text(RULE.replace("MOST = Thresh", "from ._limits import MOST\nUNUSED = Thresh"))

    found = own_rules.load(folder)
    assert found.broken == ()
    assert next(rule for rule in found.rules if rule.id == "shared").in_force["most"] == 2.0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("broken.py", "import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("broken.py", "def when(:", "SyntaxError"),
        ("broken.py", "raise SystemExit('bye')", "SystemExit: bye"),
        ("broken.py", '"""A page."""', "it has no RULE"),
        ("broken.py", '"""A page."""\nRULE = 3', "it has no RULE"),
        ("broken.py", RULE.replace("Steps are long.\n\nA rule of a team.\n", ""), "it has no docstring"),
        ("broken.py", RULE.replace('"""If a', '"""When a'), 'the docstring of its when does not begin with "If"'),
        ("broken.py", RULE.replace('"""then ask', '"""ask'), 'the docstring of its then does not begin with "then"'),
        ("broken.py", RULE.replace("Area.MODEL", '"model"'), "its area has type str, not Area"),
        ("broken.py", RULE.replace("sources=()", "sources=('A book')"), "its sources has type str, not tuple"),
        ("broken.py", RULE.replace("def when", "def where"), "its when has type NoneType, not Callable"),
        ("broken.py", RULE.replace("difficulty=1", "difficulty=5"), "its difficulty is not 1, 2 or 3"),
        ("host_logging.py", RULE, "a rule host-logging already exists"),
    ],
)
def test_broken_rule_is_reported_in_one_line_and_others_load(folder, name, text, message):
    (folder / name).write_text(text)

    found = own_rules.load(folder)
    assert ids(found) == {"long-steps"}
    (line,) = found.broken
    assert f" {name[:-3]} from {folder} " in line
    assert message in line
    assert "\n" not in line


def test_missing_path_is_reported_as_missing(tmp_path):
    with pytest.raises(ProfilerError, match=r"There is no file or folder .*missing"):
        own_rules.load(tmp_path / "missing")


@pytest.mark.parametrize("when", [True, False])
def test_crash_of_own_rule_names_its_line(folder, when):
    line = "    return m[step_time_mean] / 0" if when else "    return None / 1"
    text = RULE.replace("    time = m[step_time_mean]\n", f"    time = 2.0\n{line if when else ''}\n")
    (folder / "long_steps.py").write_text(
        text.replace('    return Advice(then="Ask."', f'{line}\n    return Advice(then="Ask."')
    )
    (rule,) = (rule for rule in own_rules.load(folder).rules if rule.id == "long-steps")

    (verdict,) = judge(Metrics(None, given={step_time_mean: 2.0}), [rule]).verdicts

    assert verdict.outcome is Outcome.CRASHED
    number = 1 + (folder / "long_steps.py").read_text().splitlines().index(line)
    assert f"{folder / 'long_steps.py'}, line {number}." in verdict.remedy
    assert "report it" not in verdict.remedy


@pytest.mark.parametrize("name", ["", "notes.txt", "_limits.py"])
def test_path_without_rules_is_profiler_error(tmp_path, name):
    for other in ("notes.txt", "_limits.py"):
        (tmp_path / other).write_text("")

    with pytest.raises(ProfilerError, match="There are no rules in"):
        own_rules.load(tmp_path / name)


def test_installed_packages_provide_rules(tmp_path, monkeypatch):
    (tmp_path / "one_module.py").write_text(RULE)
    package = tmp_path / "their_rules"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name in ("_shared.py", "first.py", "second.py"):
        (package / name).write_text(RULE)
    monkeypatch.syspath_prepend(tmp_path)
    entries = [
        EntryPoint(name, module, own_rules.GROUP) for name, module in (("a", "one_module"), ("b", "their_rules"))
    ]
    entries += [EntryPoint("c", "no_such_module", own_rules.GROUP), EntryPoint("d", "no_such.module", own_rules.GROUP)]
    monkeypatch.setattr(own_rules, "entry_points", lambda group: entries if group == own_rules.GROUP else [])

    found = own_rules.load()
    for module in ("one_module", "their_rules", "their_rules.first", "their_rules.second"):
        sys.modules.pop(module, None)
    assert ids(found) == {"one-module", "first", "second"}
    assert [line.split()[2] for line in found.broken] == ["no_such_module", "module"]


def test_configuration_names_own_rules_and_sets_limits(folder, tmp_path):
    path = tmp_path / "here.toml"
    path.write_text('rules_path = "long_steps.py"\n[rules.long-steps]\nmost = 2')

    (rule,) = (rule for rule in configure(path).rules.rules if rule.id == "long-steps")
    assert rule.in_force == {"most": 2}
