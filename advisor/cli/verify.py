"""Try the advice on a run: the program again, with each change and without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from profiler.errors import ProfilerError

if TYPE_CHECKING:
    pass


@click.command(
    short_help="Try the advice: run the program with each change and without.",
    help="Try the advice on a recorded RUN (its folder): the program again, with each change and without, in turns. "
    "Without RULE, all advice above information that can be tried.",
)
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("rules", metavar="[RULE]...", nargs=-1)
@click.option("--allow", default="", help="Changes to try beyond exact ones: numerics, memory, trajectory.")
@click.option("--processes", type=click.IntRange(2, 20), default=3, help="Runs with each change, and without.  [3]")
@click.option("--steps", type=click.IntRange(min=30), help="Steps of each run.  [what the prediction needs]")
@click.option("--cover", multiple=True, help="Another folder that the program writes into; kept from being changed.")
@click.option("--in-place", is_flag=True, help="Without the sandbox: what the program writes stays written.")
@click.option("--yes", is_flag=True, help="Do not ask before the first run.")
def verify(
    folder: Path,
    rules: tuple[str, ...],
    allow: str,
    processes: int,
    steps: int | None,
    cover: tuple[str, ...],
    in_place: bool,
    yes: bool,
) -> None:
    """See the module."""
    # Imported only now: other commands start that much sooner.
    from advisor.publish import publish
    from advisor.render.terminal import summarize
    from advisor.verify import session

    trial = session.prepare(folder, rules, allow, in_place=in_place, covered=cover)
    for note in trial.left_out:
        click.echo(note, err=True)
    if not trial.candidates:
        raise ProfilerError("There is nothing to try.", "See `profile-train report` for what was advised.")
    click.echo(session.announcement(trial, processes, steps), err=True)
    if not yes and not click.confirm("Go on?", err=True):
        raise click.Abort
    session.carry_out(trial, processes, steps)
    summarize(publish(folder), folder)
