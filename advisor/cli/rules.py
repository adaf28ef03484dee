"""List the rules."""

from __future__ import annotations

import textwrap
from pathlib import Path

import click

from advisor.cli import options


@click.command(
    short_help="List every rule.",
    help="List every rule: what it looks for and what it advises.",
    epilog="Example: profile-train rules --rules tools/rules",
)
@options.CONFIG
@options.RULES
def rules(config: Path | None, own_rules: Path | None) -> None:
    """List every rule with its condition."""
    from advisor.report import pages

    area = None
    for rule in options.rules(config, own_rules):
        if rule.area is not area:
            click.echo(f"{'' if area is None else chr(10)}{pages.AREAS[rule.area]}")
            area = rule.area
        click.echo(f"  {rule.id:<28} {rule.title}{' (switched off)' if rule.off else ''}")
        condition = textwrap.fill(
            f"if {pages.condition(rule)}", 78, initial_indent=" " * 31, subsequent_indent=" " * 31
        )
        click.echo(condition)
    click.echo("\nAll about one of them: profile-train explain RULE")
