"""Options of commands that run the program again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from advisor.cli.command import HeadedOption
from advisor.cli.options import Criteria, calibration_file
from profiler.errors import ProfilerError

if TYPE_CHECKING:
    from advisor.metrics.base import Goals
    from advisor.rules.base import Safety
    from advisor.verify.trials import TrialChoices

R = TypeVar("R")

_trial = partial(click.option, cls=HeadedOption, heading="Trials")


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The values of these options."""

    named: tuple[Safety, ...]
    processes: int
    steps: int | None
    covered: tuple[str, ...]
    network: bool
    in_place: bool
    yes: bool

    def choices(self, criteria: Criteria, goals: Goals) -> TrialChoices:
        """Return them with what judges the runs."""
        from advisor.rules.base import Safety
        from advisor.verify.trials import TrialChoices

        return TrialChoices(
            allowed=(Safety.EXACT, *self.named),  # exact changes, and the kinds that were named
            processes=self.processes,
            steps=self.steps,
            in_place=self.in_place,
            covered=self.covered,
            network=self.network,
            goals=goals,
            rules=criteria.config.rules.rules,
            past=criteria.past(),
            calibration=calibration_file(criteria.calibration),
        )


def _kinds(ctx: click.Context, _option: click.Parameter, allow: tuple[str, ...]) -> tuple[Safety, ...]:
    """Return all kinds named in one option or several: "numerics,memory"."""
    names = [name.strip() for name in ",".join(allow).split(",") if name.strip()]
    if not names or ctx.resilient_parsing:  # then the shell only asks what may follow
        return ()
    from advisor.rules.base import Safety

    known = {each.value: each for each in Safety}
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"{unknown[0]!r} is not a kind of change. Choose from: {', '.join(known)}.")
    return tuple(known[name] for name in names)


_TRIALS = (
    _trial(
        "--allow",
        "named",
        multiple=True,
        callback=_kinds,
        help="Kinds of changes to try in addition to exact ones: numerics, memory, trajectory. Repeat the option, or "
        "separate kinds by commas.",
    ),
    _trial(
        "--repeats",
        "processes",
        type=click.IntRange(2, 20),
        default=3,
        help="Runs with each change, and the same number without.  [3]",
    ),
    _trial("--steps", type=click.IntRange(min=40), help="Steps per run.  [as many as the prediction needs]"),
    _trial(
        "--overlay",
        "covered",
        multiple=True,
        metavar="FOLDER",
        help="Another folder that the program writes to; trials do not change it.",
    ),
    _trial("--network", is_flag=True, help="Allow network access: the program can really send data."),
    _trial("--in-place", is_flag=True, help="Do not use the sandbox: files that the program writes stay."),
    _trial("--yes", is_flag=True, help="Do not ask before the first run."),
)


def options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options to a command, which takes them as one argument, `how`."""

    @wraps(command)
    def trying(**given: Any) -> R:
        how = TrialOptions(**{each.name: given.pop(each.name) for each in fields(TrialOptions)})
        return command(how=how, **given)

    for option in reversed(_TRIALS):
        trying = option(trying)
    return trying


def confirm(announcement: str, yes: bool) -> None:
    """Announce what will run, and ask for confirmation.

    Raises:
        click.Abort: the answer is no.
        ProfilerError: there is no answer.
    """
    click.echo(announcement, err=True)
    try:
        if not yes and not click.confirm("Go on?", err=True):
            raise click.Abort
    except click.Abort as end:
        if isinstance(end.__context__, EOFError):
            raise ProfilerError("Nothing was run, because nobody answered.", "To go on without asking: --yes") from None
        raise
