"""docs/rules.md, a table of the rules and the page of each, and the README's overview of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from advisor import pages
from advisor.manual import markdown
from advisor.rules.base import Rule
from profiler.errors import ProfilerError

MARKS = ("<!-- rules -->", "<!-- /rules -->")
"""Where the overview stands in the README."""


def document(rules: Sequence[Rule]) -> str:
    """docs/rules.md."""
    rows = [(f"`{rule.id}`", pages.TIERS[rule.tier], rule.title, pages.condition(rule)) for rule in rules]
    return markdown.document(
        "# Rules",
        markdown.generated(of="the rules themselves"),
        markdown.table(("Rule", "Area", "Advice", "If"), rows),
        *map(pages.page, rules),
    )


def with_overview(readme: str, rules: Sequence[Rule]) -> str:
    """The README with the overview between its marks made new.

    Raises:
        ProfilerError: the marks are not there.
    """
    before, opened, rest = readme.partition(MARKS[0])
    _, closed, after = rest.partition(MARKS[1])
    if not opened or not closed:
        raise ProfilerError("The README has no place for the rules.", f"Add {MARKS[0]} and {MARKS[1]}.")
    return f"{before}{MARKS[0]}\n{_overview(rules)}\n{MARKS[1]}{after}"


def _overview(rules: Sequence[Rule]) -> str:
    rows = [
        (title, ", ".join(f"[{rule.id}](docs/rules.md#{_anchor(rule)})" for rule in rules if rule.tier is tier))
        for tier, title in pages.TIERS.items()
        if any(rule.tier is tier for rule in rules)
    ]
    return markdown.table(("Area", "Rules"), rows)


def _anchor(rule: Rule) -> str:
    """Of its heading in docs/rules.md, as GitHub and MkDocs make it."""
    heading = f"{rule.id}: {rule.title}".lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
