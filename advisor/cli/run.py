"""Run a training program unchanged, record it, and end with the report.

profile-train train.py --lr 3e-4
profile-train -m package.train --lr 3e-4
profile-train torchrun --nproc-per-node 8 train.py
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import options
from advisor.cli.command import PROGRAM, LaunchCommand
from advisor.cli.options import Criteria
from profiler.errors import ProfilerError
from profiler.launch import Recorded, end_like, record
from profiler.options import RecordingOptions
from profiler.printable import say

if TYPE_CHECKING:
    from advisor.report.report import Report


@click.command(
    cls=LaunchCommand,
    help="Run a training program unchanged, record it, and make the report.",
    short_help="Run and record a training program (the word `run` is optional).",
    epilog="Example: profile-train --out run train.py --lr 3e-4",
)
@options.recording
@click.option("--open", "open_report", is_flag=True, help="Open the report in the browser.")
@click.option("--verify", is_flag=True, help="After the report, try the advice, as `profile-train verify` does.")
@click.option(
    "--apply",
    "tuned",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Train with the changes in a tuned.toml, applied from outside: your code does not change.",
)
@options.trials
@options.criteria
@PROGRAM()
def run(
    out: Path | None,
    budget: float,
    rate: float,
    windows: bool,
    stacks: bool,
    no_report: bool,
    open_report: bool,
    verify: bool,
    tuned: Path | None,
    yes: bool,
    criteria: Criteria,
    words: tuple[str, ...],
    **how: Any,
) -> None:
    """Run and record a training program, then report on it."""
    if not words:
        raise click.UsageError("There is nothing to run. Try: profile-train train.py")
    if words[0].startswith("-") and not words[0].startswith("-m"):
        import difflib

        if words[0] in (own_options := _own_options()):
            raise click.UsageError(f"Give options such as {words[0]} before `--`, and the program after it.")
        suggestions = difflib.get_close_matches(words[0], own_options)
        raise click.NoSuchOption(words[0], possibilities=suggestions, ctx=click.get_current_context())
    if verify and no_report:
        raise click.UsageError("--verify tries the advice of the report: remove --no-report.")
    if verify and tuned:
        raise click.UsageError("--verify tries changes to the unchanged program: remove --apply.")
    trial = _changed(tuned) if tuned else None
    with _stdin_kept(verify and not yes):
        recording_options = RecordingOptions(budget=budget, rate=rate, windows=windows, stacks=stacks)
        recording = record(words, out, recording_options, trial)
    try:
        for note in recording.notes:
            say(note)
        for option in [] if no_report else _misplaced(words):
            say(f"{option} came after the script, so it went to the script: profile-train's options come before it.")
        if tuned and recording.folder is not None:
            from advisor.verify import tuned as tuned_toml

            tuned_toml.keep(tuned, recording.folder)
        if not no_report and recording.folder is not None:
            with _in_the_time_left():
                report = _in_turn(recording.folder, partial(_measured, recording.folder, criteria))
                if report is not None:
                    show(report, recording.folder, open_report)
            if verify:
                _verify(recording, how, yes, criteria)
    except ProfilerError as error:
        say(f"{error.message} {error.remedy}")
    except KeyboardInterrupt:
        say(f"no report; make it with: profile-train report {recording.folder}")
    except Exception as error:  # noqa: BLE001 - still return the program's exit status
        say(f"the report failed ({type(error).__name__}: {error}); the recording is in {recording.folder}")
    except SystemExit:  # raised by rich if the reader of our output is gone
        pass
    end_like(recording.status)


def _misplaced(words: tuple[str, ...]) -> list[str]:
    """Return options of profile-train among a script's arguments that its source does not mention."""
    flags = {word.partition("=")[0] for word in words[1:] if word.startswith("--")}
    own_flags = flags.intersection(_own_options())
    try:
        source = Path(words[0]).read_text(encoding="utf-8", errors="replace") if own_flags else ""
    except OSError:  # a command or a module: its options are unknown
        return []
    return sorted(option for option in own_flags if option.removeprefix("--").replace("-", "_") not in source)


def _own_options() -> list[str]:
    ctx = click.get_current_context()
    return [name for option in ctx.command.get_params(ctx) if isinstance(option, click.Option) for name in option.opts]


@contextlib.contextmanager
def _stdin_kept(needed: bool) -> Iterator[None]:
    """Keep standard input for a question after the program ends; recording closes the program's streams."""
    if not needed:
        yield
        return
    try:
        descriptor = os.dup(0)
    except OSError:  # there is none
        yield
        return
    try:
        yield
    finally:
        os.dup2(descriptor, 0)
        os.close(descriptor)


@contextlib.contextmanager
def _in_the_time_left() -> Iterator[None]:
    """Ignore SIGTERM while the report is made.

    Schedulers send SIGTERM some seconds before SIGKILL, also to all tasks of a job when the first one has failed. By
    then the program has ended, and there is enough time for a report.
    """
    handler = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _in_turn(folder: Path, make_report: Callable[[], Report]) -> Report | None:
    """Make the report of a folder that several recorders of a job may write into, one recorder at a time.

    The last recorder to end makes the report that includes it. Returns None if another recorder makes the report.
    """
    from profiler.recorder import folder as run_folder

    if not run_folder.is_shared(folder):
        return make_report()
    while True:
        notes = run_folder.notes(folder)
        with run_folder.lock(folder, "reporting", patience=0.0) as locked:
            if not locked:
                say(f"another recorder of this job makes the report of {folder}, and renews it with this recording.")
                return None
            report = make_report()
        if run_folder.notes(folder) == notes:
            return report


def _changed(tuned: Path) -> dict[str, Any]:
    """Return the changes that the agent applies to a full training run."""
    from advisor.verify import tuned as tuned_toml
    from profiler.child import set_variables
    from profiler.trial import variables

    changes = tuned_toml.read(tuned)
    set_variables(variables(changes))
    say(f"applied from {tuned}: {', '.join(map(_applied, changes)) or 'nothing'}")
    return {"steps": None, "seed": 0, "nudged": False, "changes": changes}


def _applied(change: dict[str, Any]) -> str:
    """Return a change as "loader at train.py:61, num_workers=2"."""
    settings = {name: value for name, value in change["settings"].items() if value is not None}
    file, line = settings.pop("file", None), settings.pop("line", None)
    place = f" at {Path(str(file)).name}:{line}" if file else ""
    return ", ".join([f"{change['name']}{place}", *(f"{name}={value}" for name, value in settings.items())])


def _verify(recorded: Recorded, how: Mapping[str, Any], yes: bool, criteria: Criteria) -> None:
    assert recorded.folder is not None
    if recorded.status:
        say("nothing was tried, because the program failed.")
        return
    from advisor.cli.verify import try_advice

    try:
        try_advice(recorded.folder, (), how, yes, criteria, criteria.lenient_goals())
    except (click.Abort, KeyboardInterrupt):
        say(f"some advice was not tried; continue with: profile-train verify {recorded.folder}")


def _measured(folder: Path, criteria: Criteria) -> Report:
    """Run the measurements that rules request, now that the program has ended, and write the report."""
    from advisor.verify.probe import probe

    with contextlib.suppress(Exception):  # optional: the report says what was not tried
        probe(folder, criteria.config.rules.rules, say)
    if sys.stderr is not None and sys.stderr.isatty():
        say("Writing the report ...")
    return criteria.publish(folder, criteria.lenient_goals())


def show(report: Report, folder: Path, open_report: bool = False) -> None:
    """Summarize a report that was written."""
    from advisor.report.render.terminal import summarize
    from profiler import ours

    summarize(report, folder)
    if open_report:
        click.launch(str(ours.where(folder, "report.html")))
