"""What is said about a rule, and that the documents made from it are not stale."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from advisor import pages
from advisor.metrics import all_metrics
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
    assert [name for name, limit in rule.thresholds.items() if not limit.why] == []


def test_a_page_holds_the_limits_of_its_rule_and_how_to_set_them():
    (fused,) = (rule for rule in all_rules() if rule.id == "optimizer-fused")

    assert re.search(r"\[rules\.optimizer-fused\].*\n\n- `min_fraction = 0\.05`: \w+", pages.page(fused))
    assert "`min_fraction = 0.05`, here 0.1: " in pages.page(replace(fused, limits={"min_fraction": 0.1}))


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("optimizer-fused", "## optimizer-fused: "),
        ("optimizer_fused", "## optimizer-fused: "),
        ("padding-waste", "## padding-waste: "),
        ("padding_waste", "## padding_waste: "),
        ("step_time_mean", "## step_time_mean: "),
        ("Step-Time-Mean", "## step_time_mean: "),
    ],
)
def test_a_rule_or_a_metric_is_explained_by_its_name(name, title):
    assert pages.explained(name, all_rules()).startswith(title)


@pytest.mark.parametrize(
    ("name", "meant"), [("optimiser-fusd", "optimizer-fused"), ("step_time_maen", "step_time_mean")]
)
def test_an_unknown_name_ends_in_the_nearest(name, meant):
    with pytest.raises(ProfilerError) as caught:
        pages.explained(name, all_rules())

    assert meant in caught.value.remedy


def test_a_metric_is_told_with_its_name_for_people_its_meaning_and_its_unit():
    page = pages.explained("data_wait_fraction", ())

    assert "share of the step waiting for data" in page
    assert "no batch was ready" in page
    assert page.endswith("**Unit** a share or ratio\n")
    assert pages.explained("queue_depth", ()).endswith("**Unit** a count\n")


def test_the_glossary_has_a_row_for_every_metric():
    rows = pages.glossary(all_metrics()).splitlines()

    assert sorted(row.split("`")[1] for row in rows if row.startswith("| `")) == [m.name for m in all_metrics()]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows if row.startswith("|")} == {5}
    assert "## Step" in rows


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
    assert pages.glossary(all_metrics()) == (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
