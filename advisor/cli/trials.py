"""The options of commands that run the program again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from advisor.cli.command import Listed
from profiler.errors import ProfilerError

if TYPE_CHECKING:
    from advisor.rules.base import Safety

R = TypeVar("R")

_trial = partial(click.option, cls=Listed, heading="Trials")


@dataclass(frozen=True, slots=True)
class How:
    """What they say."""

    allowed: tuple[Safety, ...]
    processes: int
    steps: int | None
    covered: tuple[str, ...]
    in_place: bool
    yes: bool


def _kinds(ctx: click.Context, _option: click.Parameter, allow: str) -> tuple[Safety, ...]:
    """Exact changes, and the kinds that are named beside: "numerics, memory"."""
    if ctx.resilient_parsing:  # the shell only asks what may follow
        return ()
    # Imported only now: the program starts that much sooner.
    from advisor.rules.base import Safety

    names = [name.strip() for name in allow.split(",") if name.strip()]
    known = {each.value: each for each in Safety}
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"{unknown[0]!r} is no kind of change. Known are: {', '.join(known)}.")
    return (Safety.EXACT, *(known[name] for name in names))


_TRIALS = (
    _trial(
        "--allow",
        "allowed",
        default="",
        callback=_kinds,
        help="Changes to try beyond exact ones: numerics, memory, trajectory.",
    ),
    _trial(
        "--processes",
        type=click.IntRange(2, 20),
        default=3,
        help="Runs with each change, and as many without.  [3]",
    ),
    _trial("--steps", type=click.IntRange(min=40), help="Steps of each run.  [what the prediction needs]"),
    _trial(
        "--cover",
        "covered",
        multiple=True,
        metavar="FOLDER",
        help="Another folder that the program writes into; kept from being changed.",
    ),
    _trial("--in-place", is_flag=True, help="Without the sandbox: what the program writes stays written."),
    _trial("--yes", is_flag=True, help="Do not ask before the first run."),
)


def options(command: Callable[..., R]) -> Callable[..., R]:
    """The options of such a command, which takes them as one, `how`."""

    @wraps(command)
    def trying(**given: Any) -> R:
        how = How(**{each.name: given.pop(each.name) for each in fields(How)})
        return command(how=how, **given)

    for option in reversed(_TRIALS):
        trying = option(trying)
    return trying


def confirm(announcement: str, yes: bool) -> None:
    """Tell what is going to be run, and ask.

    Raises click.Abort if it is not to be, ProfilerError if nobody answers.
    """
    click.echo(announcement, err=True)
    try:
        if not yes and not click.confirm("Go on?", err=True):
            raise click.Abort
    except click.Abort as end:
        if isinstance(end.__context__, EOFError):
            raise ProfilerError("Nothing was run, because nobody answered.", "To go on without asking: --yes") from None
        raise
