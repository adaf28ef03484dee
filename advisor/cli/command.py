"""Commands with many options: help that fits a screen, and the full help on request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import completion

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class HeadedOption(click.Option):
    """An option under its own heading in the help."""

    def __init__(self, *declarations: Any, heading: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.heading = heading


PROGRAM = partial(
    click.argument,
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="SCRIPT | -m MODULE | COMMAND  [ARGS]...",
    shell_complete=completion.files,
)
"""The argument of a LaunchCommand."""

_WHOLE = "profile-train.help-all"


def tell_all(ctx: click.Context) -> None:
    """Make commands in this context show their full help."""
    ctx.meta[_WHOLE] = True


def _help_all(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        tell_all(ctx)
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_help_all, help="Show all options."
)


class Command(click.Command):
    """A command with many options, whose short help fits a screen.

    The short help lists only the headings of headed options; --help-all shows all options.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's options and --help-all."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options without a heading, then the others or their headings."""
        groups: dict[str, list[click.Option]] = {"Options": []}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option):
                groups.setdefault(option.heading if isinstance(option, HeadedOption) else "Options", []).append(option)
        full_help = ctx.meta.get(_WHOLE, False)
        for heading in groups if full_help else ["Options"]:
            with formatter.section(heading):
                formatter.write_dl([row for option in groups[heading] if (row := option.get_help_record(ctx))])
        if not full_help:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"--help-all shows more: {', '.join([*groups][1:])}.")


class LaunchCommand(Command):
    """A command that runs a program with its own arguments."""

    allow_interspersed_args = False
    ignore_unknown_options = True

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions; after the program, only files."""
        if ctx.params.get("words"):
            return completion.files(ctx, None, incomplete)
        return super().shell_complete(ctx, incomplete)
