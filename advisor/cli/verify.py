"""Try the advice on a run: run the program again with and without each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import completion, options
from advisor.cli.command import Command
from advisor.cli.options import Criteria
from profiler.errors import ProfilerError
from profiler.printable import printable, say

if TYPE_CHECKING:
    from advisor.metrics.base import Goals
    from advisor.verify.session import Session


@click.command(
    cls=Command,
    short_help="Try the advice: run the program with and without each change.",
    help="Try the advice for a recorded RUN (its folder): run the program again, alternately with and without each "
    'change. Without RULE, try all advice above "information" that can be tried.',
    epilog="\b\nExamples:\n  profile-train verify runs/first\n"
    "  profile-train verify runs/first precision-bf16 --allow numerics",
)
@click.argument(
    "folder",
    metavar="RUN",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    shell_complete=completion.runs,
)
@click.argument("rules", metavar="[RULE]...", nargs=-1, shell_complete=completion.rules)
@click.option(
    "--patch",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the first change that is confirmed to this file, as a unified diff for `git apply`.",
)
@options.trials
@options.criteria
def verify(folder: Path, rules: tuple[str, ...], file: Path | None, yes: bool, criteria: Criteria, **how: Any) -> None:
    """Try the advice on a recorded run."""
    try:
        session = try_advice(folder, rules, how, yes, criteria, criteria.goals)
        if file is not None:
            click.echo(
                write_patch(session, file) if session else f"Nothing was tried, so {file} was not written.", err=True
            )
    except KeyboardInterrupt:
        say("interrupted; run the same command again to continue.")
        raise click.Abort from None


def try_advice(
    folder: Path, rules: Sequence[str], how: Mapping[str, Any], yes: bool, criteria: Criteria, wanted: Goals
) -> Session | None:
    """Announce the trial, ask for confirmation, run it, and make the report again; None if there is nothing to try.

    `how` are the options of `trials`.

    Raises:
        ProfilerError: the run cannot be run again, or another recording replaced it meanwhile.
        click.Abort: the answer is no.
    """
    from rich.console import Console

    from advisor.report.render.terminal import summarize
    from advisor.report.render.trial_progress import TrialProgress
    from advisor.verify import session

    trial = session.prepare(folder, rules, criteria.trials(how, wanted))
    for note in trial.left_out:
        click.echo(note, err=True)
    if not trial.candidates:
        click.echo("This run has no advice that can be tried.", err=True)
        if trial.on_demand:
            click.echo(f"Tried only if you name the rule: {', '.join(trial.on_demand)}.", err=True)
        return None
    confirm(session.announcement(trial), yes)
    with TrialProgress(Console(stderr=True, highlight=False)) as progress:
        trial.carry_out(progress)
    summarize(criteria.publish(folder, wanted), folder)
    return trial


def confirm(announcement: str, yes: bool) -> None:
    """Announce what will run, and ask for confirmation.

    Raises:
        click.Abort: the answer is no.
        ProfilerError: there is no answer.
    """
    click.echo(announcement, err=True)
    try:
        if not yes and not click.confirm("Continue?", err=True):
            raise click.Abort
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            raise ProfilerError(
                "Nothing was run, because there was no answer.", "To run without asking: --yes"
            ) from None
        raise


def write_patch(session: Session, file: Path) -> str:
    """Write the first confirmed change of the plan as a patch, and return what to do with it, or why there is none."""
    from advisor.atomic_write import write
    from advisor.patches.patch import patch
    from advisor.patches.source import NoPatch
    from advisor.verify import kept

    results, program = kept.read(session.folder), session.trials.program
    confirmed_findings = [finding for finding in session.candidates if results[finding.rule.id].verdict.is_kept]
    if not confirmed_findings:
        return f"No change was confirmed, so {file} was not written."
    finding, *others = confirmed_findings
    try:
        source_patch = patch(finding.change, program.words, program.cwd)
    except NoPatch as reason:
        return f"{finding.rule.id} was confirmed, but {file} was not written. {reason}"
    write(file, source_patch.diff)
    hint = (
        f" Record again before you make the next change: {', '.join(other.rule.id for other in others)}."
        if others
        else ""
    )
    return printable(f"To apply {finding.rule.id}: cd {source_patch.folder} && git apply {file.absolute()}{hint}")
