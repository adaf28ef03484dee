"""Try the advice on a run: the program again, with each change and without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import options
from profiler.errors import ProfilerError

if TYPE_CHECKING:
    from advisor.rules.base import Safety


@click.command(
    cls=options.Command,
    short_help="Try the advice: run the program with each change and without.",
    help="Try the advice on a recorded RUN (its folder): the program again, with each change and without, in turns. "
    "Without RULE, all advice above information that can be tried.",
)
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("rules", metavar="[RULE]...", nargs=-1)
@options.trials
@options.CONFIG
@options.RULES
@options.goals
def verify(
    folder: Path,
    rules: tuple[str, ...],
    allowed: tuple[Safety, ...],
    processes: int,
    steps: int | None,
    covered: tuple[str, ...],
    in_place: bool,
    yes: bool,
    config: Path | None,
    own_rules: Path | None,
    **declared: Any,
) -> None:
    """See the module."""
    # Imported only now: other commands start that much sooner.
    from rich.console import Console

    from advisor.config import configure
    from advisor.declared import goals
    from advisor.publish import publish
    from advisor.render.terminal import summarize
    from advisor.render.trial_progress import TrialProgress
    from advisor.verify import session

    chosen = options.configuration(config, own_rules) or configure()
    wanted = goals(chosen.declared(declared))
    trial = session.prepare(
        folder,
        rules,
        allowed,
        processes=processes,
        steps=steps,
        in_place=in_place,
        covered=covered,
        goals=wanted,
        known=chosen.rules.rules,
    )
    for note in trial.left_out:
        click.echo(note, err=True)
    if not trial.candidates:
        name_it = f"For information only, so tried if it is named: {', '.join(trial.on_demand)}."
        see = f"See what was advised: profile-train report {folder}"
        raise ProfilerError("There is nothing to try.", name_it if trial.on_demand else see)
    options.confirm(session.announcement(trial), yes)
    try:
        with TrialProgress(Console(stderr=True, highlight=False)) as progress:
            trial.carry_out(progress)
    except KeyboardInterrupt:
        click.echo("profile-train: interrupted; the same command goes on where it was.", err=True)
        raise click.Abort from None
    summarize(publish(folder, wanted, rules=chosen.rules), folder)
