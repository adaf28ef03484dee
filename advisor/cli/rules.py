"""List the rules."""

from __future__ import annotations

import textwrap

import click


@click.command(short_help="List every rule.", help="List every rule: what it looks for and what it advises.")
def rules() -> None:
    """See the module."""
    from advisor import pages
    from advisor.rules import all_rules

    area = None
    for rule in all_rules():
        if rule.tier is not area:
            click.echo(f"{'' if area is None else chr(10)}{pages.TIERS[rule.tier]}")
            area = rule.tier
        click.echo(f"  {rule.id:<28} {rule.title}")
        condition = textwrap.fill(
            f"if {pages.condition(rule)}", 78, initial_indent=" " * 31, subsequent_indent=" " * 31
        )
        click.echo(condition)
    click.echo("\nAll about one of them: profile-train explain RULE")
