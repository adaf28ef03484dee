"""report.md: short, and safe to post."""

from dataclasses import replace

import pytest
from golden_report import empty, golden, hostile, tried
from snapshots import same, scenes

from advisor.judging.judge import Outcome
from advisor.metrics.base import Need
from advisor.report.render import html, markdown
from advisor.rules.base import text


def test_snapshot_of_reports():
    reports = {"golden": golden(), "tried": tried(), "killed before it trained": empty()}
    same("reports.md", scenes({name: markdown.render(report) for name, report in reports.items()}))


def test_says_how_to_break_down_large_other_phase():
    much = tuple(replace(p, seconds=0.1, share=0.5) if p.name == "other" else p for p in golden().phases)

    assert "region(" in markdown.render(replace(golden(), phases=much))
    assert "region(" not in markdown.render(golden())


@pytest.mark.parametrize("form", [markdown, html])
def test_change_already_stated_in_advice_is_not_repeated(form):
    first = golden().advice[0]
    words = (text("Move the sleep elsewhere."), text("Then measure again."))
    advice = replace(first.finding.advice, then="A line sleeps. Move the sleep elsewhere.", changes=words)
    shown = form.render(replace(golden(), advice=(replace(first, finding=replace(first.finding, advice=advice)),)))

    assert [shown.count(change.code) for change in words] == [1, 1]


def test_needs_for_another_machine_are_listed_last():
    gpu = next(check for check in golden().checked if check.outcome is Outcome.NOT_MEASURED)
    word = replace(
        gpu, rule=replace(gpu.rule, id="spot-switch"), why="The discount was not declared", need=Need.DECLARATION
    )

    text = markdown.render(replace(golden(), checked=(gpu, word)))
    assert text.index(word.why) < text.index(gpu.why)


def test_tiny_share_has_no_html_entity():
    overhead = replace(golden().overhead, fraction=1e-5)

    assert "under 0.1%" in markdown.render(replace(golden(), overhead=overhead))


@pytest.mark.parametrize("attack", ["<script>alert(1)</script>", "<img src=x>", "&lt;"])
def test_untrusted_html_is_in_code_or_escaped(attack):
    fenced = False
    for line in markdown.render(hostile(attack)).splitlines():
        fenced ^= line.startswith("```")
        outside_code = "" if fenced else "".join(line.split("`")[::2])
        assert attack not in outside_code


def test_untrusted_markup_is_escaped():
    assert str(markdown.text("[a](javascript:b) **c** `d` _e_ snake_case |")) == (
        r"\[a\](javascript:b) \*\*c\*\* `d` \_e\_ snake_case \|"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("In its `__getitem__`: `a[0] < b`", "In its `__getitem__`: `a[0] < b`"),
        ("`a|b`", r"\`a\|b\`"),
        ("``a` <b>", r"\`\`a\` &lt;b>"),
    ],
)
def test_code_in_text_stays_code(value, shown):
    assert str(markdown.text(value)) == shown


def test_code_containing_a_fence_gets_longer_fence():
    assert str(markdown.fence("```\nx", "python")) == "````python\n```\nx\n````"
    assert str(markdown.code("a`b")) == "``a`b``"
