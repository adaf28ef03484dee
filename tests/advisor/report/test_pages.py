"""What is said about a rule or a metric."""

import re
from dataclasses import replace

import pytest

from advisor.metrics.step import data_wait_fraction
from advisor.report import pages
from advisor.rules import all_rules
from profiler.errors import ProfilerError


def test_every_rule_says_if_then_why_and_when_it_is_wrong(subtests):
    for rule in all_rules():
        with subtests.test(rule.id):
            assert len(pages.condition(rule)) > 20
            assert not pages.condition(rule).lower().startswith("if ")
            assert len(pages.consequence(rule)) > 10
            assert pages.explanation(rule)
            assert len(pages.wrong_when(rule)) > 10
            assert [name for name, limit in rule.thresholds.items() if not limit.why] == []


def test_page_lists_limits_of_rule_and_how_to_set_them():
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
    ("name", "meant"), [("optimizer-fusd", "optimizer-fused"), ("step_time_maen", "step_time_mean")]
)
def test_unknown_name_suggests_nearest(name, meant):
    with pytest.raises(ProfilerError) as caught:
        pages.explained(name, all_rules())

    assert meant in caught.value.remedy


def test_metric_page_has_label_meaning_and_unit():
    page = pages.explained("data_wait_fraction", ())

    assert data_wait_fraction.label in page
    assert data_wait_fraction.doc.splitlines()[0] in page
    assert page.endswith(f"**Unit** {pages.UNITS[data_wait_fraction.unit]}\n")
    assert pages.explained("queue_depth", ()).endswith(f"**Unit** {pages.UNITS['count']}\n")
