"""A plan as one HTML file that holds all it needs, runs no script and asks the network for nothing."""

from __future__ import annotations

from markupsafe import Markup

from advisor.plan.plan import Plan
from advisor.render.plan_view import sections
from advisor.render.templates import environment, folder
from profiler.version import __version__

# Bars are drawn by inline styles; without requests they can tell nobody anything.
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'"


def render(plan: Plan, command: str) -> str:
    """The whole page; `command` is what made it."""
    style = (folder() / "report.css").read_text(encoding="utf-8")
    return (
        environment()
        .get_template("plan.html")
        .render(sections=sections(plan), command=command, policy=_POLICY, style=Markup(style), version=__version__)
    )
