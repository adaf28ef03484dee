"""docs/commands.md: the help of each command."""

import click

from advisor import cli
from advisor.cli.command import tell_all
from advisor.manual import markdown

WIDTH = 80
"""Columns: more are cut off at the edge of the site's text."""


def document() -> str:
    """Return docs/commands.md: the help of every command."""
    top = _context(cli.group, None)
    parts = ["# Commands", markdown.generated(of="their own help"), _help(top)]
    for name in cli.COMMANDS:
        command = cli.group.get_command(top, name)
        assert command is not None, f"{name} is listed"
        context = _context(command, top)
        parts += [f"## {name}", _help(context)]
        if isinstance(command, click.Group):
            parts += [_help(_context(inner, context)) for inner in command.commands.values()]
    return markdown.document(*parts)


def _context(command: click.Command, parent: click.Context | None) -> click.Context:
    name = "profile-train" if parent is None else command.name
    width = {"max_content_width": WIDTH, "terminal_width": WIDTH}
    return click.Context(command, info_name=name, parent=parent, **{**command.context_settings, **width})


def _help(context: click.Context) -> str:
    tell_all(context)
    return f"```text\n{context.get_help()}\n```"
