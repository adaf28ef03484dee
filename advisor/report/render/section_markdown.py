"""Render sections as GitHub-flavored Markdown."""

from collections.abc import Sequence

from advisor.report.render.markdown import fence, text
from advisor.report.render.section import Section
from advisor.report.render.templates import environment


def render(sections: Sequence[Section]) -> str:
    """Return the whole page."""
    made = environment()
    made.filters |= {"text": text, "fence": fence}
    return made.get_template("sections.md").render(sections=sections)
