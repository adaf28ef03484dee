"""Profile, try the best advice, keep it if it is confirmed, and repeat until nothing is left."""

import os
from pathlib import Path
from typing import Any

import click

from advisor.cli import options
from advisor.cli.command import PROGRAM, LaunchCommand
from advisor.cli.options import Criteria


@click.command(
    cls=LaunchCommand,
    short_help="Try the advice step by step, and keep confirmed changes.",
    help="Profile a training program, try the best advice, keep it if it is confirmed, and repeat until nothing is "
    "left. If interrupted, run the same command again to continue.",
    epilog="\b\nExamples:\n  profile-train tune train.py\n  profile-train tune --goal memory train.py",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("profile-train-tuning"), show_default=True)
@click.option("--profile-steps", type=click.IntRange(min=60), default=150, help="Steps of each profile.  [150]")
@options.trials
@options.criteria
@PROGRAM(required=True)
def tune(out: Path, yes: bool, criteria: Criteria, words: tuple[str, ...], **how: Any) -> None:
    """Tune a training program by trials."""
    import shlex

    from rich.console import Console
    from rich.text import Text

    from advisor.atomic_write import keep, write
    from advisor.cli.verify import confirm
    from advisor.report.render import tuning
    from advisor.report.render.trial_progress import TrialProgress
    from advisor.verify.fitting import fit
    from advisor.verify.session import promise_of_harmlessness
    from advisor.verify.tuning import NOTE, note, tune
    from profiler import ours
    from profiler.launch import program
    from profiler.printable import printable, say

    program(words)  # report a missing script before anything else
    choices = criteria.trials(how, criteria.goals)
    trial_program = choices.program(words, os.getcwd())
    command = printable(shlex.join(words))
    confirm(f"Trials of {command}\n{promise_of_harmlessness(trial_program)}", yes)
    console = Console(stderr=True, highlight=False)
    try:
        with TrialProgress(console) as progress:
            fitted = fit(trial_program, out, choices, progress) if criteria.goals.goal == "memory" else None
            tuned = fitted or tune(trial_program, out, choices, progress)
    except KeyboardInterrupt:
        say("interrupted; run the same command again to continue.")
        raise click.Abort from None
    console.print()
    for line in tuning.story(tuned):
        console.print(Text(line), soft_wrap=True)
    write(out / NOTE, tuning.as_json(note(trial_program), tuned))
    tuning_md = keep(out, "tuning.md", tuning.markdown(tuned, command))
    tuned_toml = keep(out, "tuned.toml", tuning.toml(tuned))
    criteria.publish(tuned.profile, criteria.goals)
    hints = [("To apply", str(tuning_md)), ("Report", str(ours.where(tuned.profile, "report.html")))]
    if tuned.kept:
        training_command = shlex.join(["profile-train", "--apply", str(tuned_toml), *words])
        names = [change.finding.change.name for change in tuned.kept]
        caveat = ", except those to its own prints and logs" if "logging" in names else ""
        hints.insert(0, (f"To train with these changes without editing the code{caveat}", training_command))
    for label, text in hints:
        console.print(Text(printable(f"{label}: {text}")), soft_wrap=True)
    if fitted and not fitted.kept:
        raise SystemExit(1)
