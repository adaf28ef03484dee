"""Run a training program as it is, record it, and end with the report.

profile-train train.py --lr 3e-4
profile-train -m package.train --lr 3e-4
profile-train torchrun --nproc-per-node 8 train.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import completion, options
from advisor.cli.command import Launching
from advisor.cli.options import How
from profiler.errors import ProfilerError
from profiler.launch import Recorded, end_like, record
from profiler.printable import printable

if TYPE_CHECKING:
    from advisor.config import Config
    from advisor.metrics.base import Goals
    from advisor.rules.base import Safety


@click.command(
    cls=Launching,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="Run a training program as it is, record it, and end with the report.",
    short_help="Run and record a training program (may be left out).",
    epilog="Example: profile-train --out run train.py --lr 3e-4",
    options_metavar="[OPTIONS]",
)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder.  [profile-train-runs/<time>-<script>]")
@click.option("--budget", type=click.FloatRange(0, 0.5), default=0.01, help="Run time profiling may cost.  [0.01]")
@click.option("--rate", type=click.FloatRange(0.1, 100), default=10.0, help="GPU and host samples a second.  [10]")
@click.option("--windows/--no-windows", default=True, help="Short torch.profiler windows for kernel detail.")
@click.option("--no-report", is_flag=True, help="Only record; `profile-train report` makes the report later.")
@click.option("--open", "open_report", is_flag=True, help="Open the report in the browser.")
@click.option("--verify", is_flag=True, help="Then try the advice, as `profile-train verify` does.")
@click.option(
    "--with",
    "tuned",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Train with the changes of a tuned.toml, made from outside: the program stays as it is.",
)
@options.trials
@options.CONFIG
@options.RULES
@options.CALIBRATION
@options.goals
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="SCRIPT | -m MODULE | COMMAND  [ARGS]...",
    shell_complete=completion.files,
)
def run(
    out: Path | None,
    budget: float,
    rate: float,
    windows: bool,
    no_report: bool,
    open_report: bool,
    verify: bool,
    tuned: Path | None,
    allowed: tuple[Safety, ...],
    processes: int,
    steps: int | None,
    covered: tuple[str, ...],
    in_place: bool,
    yes: bool,
    config: Path | None,
    own_rules: Path | None,
    calibration: Path | None,
    words: tuple[str, ...],
    **declared: Any,
) -> None:
    """See the module."""
    if not words:
        raise click.UsageError("There is nothing to run. Try: profile-train train.py")
    if words[0].startswith("-") and not words[0].startswith("-m"):
        raise _unknown(words[0])
    if verify and no_report:
        raise click.UsageError("--verify tries what the report advises: leave out --no-report.")
    if verify and tuned:
        raise click.UsageError("--verify tries changes to the program as it is: leave out --with.")
    # Before the program starts: hours later would be late to learn of a mistake in it.
    chosen = options.configuration(config, own_rules)
    changed = _changed(tuned) if tuned else None
    recorded = record(words, out, budget=budget, rate=rate, windows=windows, trial=changed)
    try:
        for note in recorded.notes:
            say(note)
        if tuned and recorded.folder is not None:
            _keep(tuned, recorded.folder)
        if not no_report and recorded.folder is not None:
            making = partial(make_report, recorded.folder, chosen, declared, calibration, open_report)
            _in_turn(recorded.folder, making)
            if verify:
                how = How(allowed, processes, steps, covered, in_place, yes)
                _verify(recorded, chosen, declared, calibration, how)
    except ProfilerError as error:
        say(f"{error.message} {error.remedy}")
    except KeyboardInterrupt:
        say(f"no report; make it with: profile-train report {recorded.folder}")
    except Exception as error:  # noqa: BLE001 - the program's exit status is given back
        say(f"the report failed ({type(error).__name__}: {error}); the recording is in {recorded.folder}")
    except SystemExit:  # so rich takes it that whoever read our output is gone
        pass
    end_like(recorded.status)


def _unknown(option: str) -> click.NoSuchOption:
    # Imported only now: it is seldom needed.
    import difflib

    ctx = click.get_current_context()
    ours = [name for one in ctx.command.get_params(ctx) if isinstance(one, click.Option) for name in one.opts]
    return click.NoSuchOption(option, possibilities=difflib.get_close_matches(option, ours), ctx=ctx)


def _in_turn(folder: Path, make_report: Callable[[], None]) -> None:
    """One report at a time of a folder that several recorders of a job write into; whoever ends last is in it."""
    # Imported only now: the program starts that much sooner.
    from profiler.recorder import folder as place

    if not place.is_shared(folder):
        make_report()
        return
    while True:
        others = place.notes(folder)
        with place.turn(folder, "reporting", patience=0.0) as ours:
            if not ours:
                say(f"another recorder of this job makes the report of {folder}, and renews it with this recording.")
                return
            make_report()
        if place.notes(folder) == others:
            return


def _changed(tuned: Path) -> dict[str, Any]:
    """What the agent is to change in a program that trains to its own end."""
    # Imported only now: most runs are of the program as it is.
    from advisor.verify import tuned as tuned_toml
    from profiler.trial import set_variables, variables

    changes = tuned_toml.read(tuned)
    set_variables(variables(changes))
    say(f"made from outside, by {tuned}: {', '.join(each['name'] for each in changes) or 'nothing'}")
    return {"steps": None, "seed": 0, "nudged": False, "changes": changes}


def _keep(tuned: Path, folder: Path) -> None:
    from advisor.verify import tuned as tuned_toml

    tuned_toml.keep(tuned, folder)


def say(note: str) -> None:
    """Tell the user on stderr, if anybody still reads it: the terminal may have been closed, which the status must
    survive."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"profile-train: {printable(note)}", err=True)


def _verify(
    recorded: Recorded, chosen: Config | None, given: dict[str, Any], calibration: Path | None, how: How
) -> None:
    assert recorded.folder is not None
    if recorded.status:
        say("nothing is tried, for the program did not end well.")
        return
    # Imported only now: the program starts that much sooner.
    from advisor.cli.verify import try_advice
    from advisor.config import configure

    chosen = chosen or configure()
    try:
        try_advice(recorded.folder, (), how, chosen, _goals(chosen.declared(given)), calibration)
    except (click.Abort, KeyboardInterrupt):
        say(f"not all was tried; this goes on with it: profile-train verify {recorded.folder}")


def make_report(
    folder: Path,
    chosen: Config | None,
    given: dict[str, Any],
    calibration: Path | None,
    open_report: bool = False,
    *,
    quietly: bool = False,
) -> None:
    """Write and summarize it; `quietly`, without trying anything first: the program still trains."""
    # Imported only now: the program starts that much sooner.
    from advisor.config import configure
    from advisor.probe import probe
    from advisor.publish import publish
    from advisor.render.terminal import summarize

    chosen = chosen or configure()
    if not quietly:
        with contextlib.suppress(Exception):  # without it the report says what was not tried
            probe(folder, chosen.rules.rules, say)
    report = publish(folder, _goals(chosen.declared(given)), rules=chosen.rules, past=options.past(calibration))
    summarize(report, folder)
    if open_report:
        click.launch(str(folder / "report.html"))


def _goals(declared: dict[str, Any]) -> Goals:
    """A validation file that cannot be read costs the rule that needs it, not the report."""
    from advisor.declared import goals

    try:
        return goals(declared)
    except ProfilerError as error:
        say(f"{error.message} {error.remedy}")
        return goals({name: value for name, value in declared.items() if name != "validation"})
