"""List the rules, and create a new one."""

import re
import shutil
import textwrap
from pathlib import Path

import click

from advisor.cli import options
from profiler.errors import ProfilerError

RULE, CASES = Path("advisor/rules/_template.py"), Path("tests/cases/_template.py")
"""Templates of a new rule and its cases, relative to the root of a checkout."""


@click.group(
    short_help="List every rule.",
    help="List all rules with their conditions and advice.",
    epilog="Example: profile-train rules --rules tools/rules",
    invoke_without_command=True,
    subcommand_metavar="[COMMAND]",
)
@options.CONFIG
@options.RULES
@click.pass_context
def rules(context: click.Context, config: Path | None, own_rules: Path | None) -> None:
    """List every rule with its condition."""
    if context.invoked_subcommand:
        return

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
    click.echo("\nDetails of a rule: profile-train explain RULE")


@rules.command(
    short_help="Create a new rule for profile-train.",
    help="Create a rule and its test cases, for you to fill in, in the profile-train checkout in the current folder.",
    epilog="Example: profile-train rules new data-shuffle-buffer",
)
@click.argument("name")
def new(name: str) -> None:
    """Copy the templates to files of this name.

    Raises:
        ProfilerError: the name is not a valid module name, is taken, or this is not a checkout.
    """
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", module):
        raise ProfilerError(
            f"{name!r} cannot be a rule's name.", "Use lower-case letters, digits and dashes: data-shuffle-buffer."
        )
    if not (RULE.is_file() and CASES.is_file()):
        raise ProfilerError(
            f"There is no checkout of profile-train in {Path.cwd()}.",
            "Run this command in the root of a checkout. Your own rules do not need one: see docs/configuration.md.",
        )
    files = [template.with_name(f"{module}.py") for template in (RULE, CASES)]
    for file in files:
        if file.exists():
            raise ProfilerError(f"{file} exists already.", "Choose another name, or edit that file.")
    for template, file in zip((RULE, CASES), files, strict=True):
        shutil.copyfile(template, file)
        click.echo(f"Wrote {file}")
    click.echo(f"Replace each TODO, then: pytest tests/test_cases.py -k {module.replace('_', '-')}")
