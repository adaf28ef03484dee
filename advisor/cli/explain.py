"""Say all there is to say about a rule."""

from __future__ import annotations

import click


@click.command(
    short_help="Explain a rule.", help="Explain a RULE: when it speaks, what it advises, its limits and its sources."
)
@click.argument("rule", metavar="RULE")
def explain(rule: str) -> None:
    """See the module."""
    from rich.console import Console
    from rich.markdown import Markdown

    from advisor import pages

    Console().print(Markdown(pages.page(pages.rule(rule)), hyperlinks=False))
