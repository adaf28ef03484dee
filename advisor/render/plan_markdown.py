"""A plan as GitHub-flavoured Markdown."""

from __future__ import annotations

from advisor.plan.plan import Plan
from advisor.render.markdown import fence, text
from advisor.render.plan_view import sections
from advisor.render.templates import environment


def render(plan: Plan) -> str:
    """The whole page."""
    made = environment()
    made.filters |= {"text": text, "fence": fence}
    return made.get_template("plan.md").render(sections=sections(plan))
