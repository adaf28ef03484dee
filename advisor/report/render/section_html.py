"""Render sections as one HTML file that holds all it needs, runs no script and makes no requests."""

from collections.abc import Sequence

from markupsafe import Markup

from advisor.report.render.section import Page, Section
from advisor.report.render.templates import environment, folder
from profiler.version import __version__

# Bars are drawn by inline styles; without requests they can tell nobody anything.
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'"


def render(sections: Sequence[Section], page: Page) -> str:
    """Return the whole page."""
    style = (folder() / "report.css").read_text(encoding="utf-8")
    return (
        environment()
        .get_template("sections.html")
        .render(sections=sections, page=page, policy=_POLICY, style=Markup(style), version=__version__)
    )
