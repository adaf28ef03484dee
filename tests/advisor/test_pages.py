"""What is said about a rule, and that the documents made from it are not stale."""

import re
from pathlib import Path

import pytest

from advisor import pages
from advisor.rules import all_rules
from profiler.errors import ProfilerError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_every_rule_says_if_then_why_and_when_it_is_wrong(rule):
    assert len(pages.condition(rule)) > 20
    assert not pages.condition(rule).lower().startswith("if ")
    assert len(pages.consequence(rule)) > 10
    assert pages.explanation(rule)
    assert len(pages.wrong_when(rule)) > 10
    assert rule.sources


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_every_limit_of_a_rule_has_its_reason(rule):
    assert [limit.name for limit in pages.limits(rule) if not limit.why] == []


def test_a_page_holds_the_limits_of_its_rule():
    page = pages.page(pages.rule("optimizer-fused"))

    assert re.search(r"`MIN_FRACTION = 0\.05`: \w+", page)


def test_underscores_name_a_rule_too():
    assert pages.rule("optimizer_fused").id == "optimizer-fused"


def test_an_unknown_rule_ends_in_the_nearest():
    with pytest.raises(ProfilerError) as caught:
        pages.rule("optimiser-fusd")

    assert "optimizer-fused" in caught.value.remedy


def test_a_table_cell_keeps_its_bars():
    rows = pages.table(all_rules()).splitlines()

    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}


def test_the_table_goes_between_its_marks():
    text = f"before {pages.MARKS[0]} old {pages.MARKS[1]} after"

    made = pages.with_table(text, all_rules())

    assert made.startswith("before ")
    assert made.endswith(" after")
    assert " old " not in made


def test_a_document_without_marks_is_refused():
    with pytest.raises(ProfilerError):
        pages.with_table("nothing here", all_rules())


def test_the_generated_documents_are_up_to_date():
    """If this fails: python -m advisor.pages"""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert pages.with_table(readme, all_rules()) == readme
    assert pages.document(all_rules()) == (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
