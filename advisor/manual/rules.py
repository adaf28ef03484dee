"""docs/rules.md: a table of the rules, then the page of each."""

from collections.abc import Sequence

from advisor.manual import markdown
from advisor.report import pages
from advisor.rules.base import Rule


def document(rules: Sequence[Rule]) -> str:
    """Return docs/rules.md: each rule in one row, with its condition."""
    rows = [(f"`{rule.id}`", pages.AREAS[rule.area], rule.title, pages.condition(rule)) for rule in rules]
    return markdown.document(
        "# Rules",
        markdown.generated(of="the rules themselves"),
        markdown.table(("Rule", "Area", "Advice", "If"), rows),
        *map(pages.page, rules),
    )
