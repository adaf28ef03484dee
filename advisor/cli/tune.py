"""Profile, try the best advice, keep it if it is confirmed, and so on until nothing is left."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Try advice after advice, and keep what is confirmed.",
    help="Profile a training program, try the best advice, keep it if it is confirmed, profile again, until nothing is "
    "left. Cut off, the same command goes on where it was.",
    options_metavar="[OPTIONS]",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("profile-train-tuning"), show_default=True)
@click.option("--allow", default="", help="Changes to try beyond exact ones: numerics, memory, trajectory.")
@click.option("--processes", type=click.IntRange(2, 20), default=3, help="Runs with each change, and without.  [3]")
@click.option("--steps", type=click.IntRange(min=30), help="Steps of each run.  [what the prediction needs]")
@click.option("--profile-steps", type=click.IntRange(min=40), default=150, help="Steps of each profile.  [150]")
@click.option("--cover", multiple=True, help="Another folder that the program writes into; kept from being changed.")
@click.option("--in-place", is_flag=True, help="Without the sandbox: what the program writes stays written.")
@click.option("--yes", is_flag=True, help="Do not ask before the first run.")
@click.argument(
    "words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT | -m MODULE | COMMAND  [ARGS]..."
)
def tune(
    out: Path,
    allow: str,
    processes: int,
    steps: int | None,
    profile_steps: int,
    cover: tuple[str, ...],
    in_place: bool,
    yes: bool,
    words: tuple[str, ...],
) -> None:
    """See the module."""
    # Imported only now: other commands start that much sooner.
    import shlex

    from rich.console import Console

    from advisor.render import tuning_text
    from advisor.rules.base import Safety
    from advisor.verify.process import Program
    from advisor.verify.session import kinds, promise_of_harmlessness
    from advisor.verify.tuning import How, tune
    from profiler.launch import program
    from profiler.printable import printable

    program(words)  # a script that is not there is told before anything else
    how = How(
        allowed=frozenset({Safety.EXACT, *kinds(allow)}), processes=processes, steps=steps, profile_steps=profile_steps
    )
    what = Program(words=words, cwd=os.getcwd(), in_place=in_place, covered=cover)
    command = printable(shlex.join(words))
    click.echo(f"To be run, again and again: {command}\n{promise_of_harmlessness(what)}", err=True)
    if not yes and not click.confirm("Go on?", err=True):
        raise click.Abort
    console = Console(stderr=True, highlight=False)
    with console.status("") as status:
        tuned = tune(what, out, how, lambda text: status.update(printable(text)))
    for line in tuning_text.story(tuned):
        console.print(line, markup=False)
    (out / "tuning.md").write_text(tuning_text.markdown(tuned, command))
    (out / "tuned.toml").write_text(tuning_text.toml(tuned))
    console.print(f"To apply: {out / 'tuning.md'}", markup=False)
