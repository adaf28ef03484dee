"""The class of commands with many options: help that fits a screen, and all of it on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from advisor.cli import completion

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Listed(click.Option):
    """An option that stands under a heading of its own in the help."""

    def __init__(self, *declarations: Any, heading: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.heading = heading


_WHOLE = "profile-train.help-all"


def tell_all(ctx: click.Context) -> None:
    """Let the help of commands in this context be the whole."""
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
    """One of many options. Its help fits a screen: of those under headings it tells the headings, --help-all all."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own, and --help-all."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write those under no heading, and the others or their headings."""
        lists: dict[str, list[click.Option]] = {"Options": []}
        for one in self.get_params(ctx):
            if isinstance(one, click.Option):
                lists.setdefault(one.heading if isinstance(one, Listed) else "Options", []).append(one)
        whole = ctx.meta.get(_WHOLE, False)
        for heading in lists if whole else ["Options"]:
            with formatter.section(heading):
                formatter.write_dl([row for one in lists[heading] if (row := one.get_help_record(ctx))])
        if not whole:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"--help-all tells more: {', '.join([*lists][1:])}.")


class Launching(Command):
    """One that runs a program, whose words are its own."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Nothing of ours after the program."""
        if ctx.params.get("words"):
            return completion.files(ctx, None, incomplete)
        return super().shell_complete(ctx, incomplete)
