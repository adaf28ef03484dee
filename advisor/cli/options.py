"""The options that commands share: what to judge by, and what the training is for."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from advisor.cli.command import Listed
from profiler.errors import ProfilerError
from profiler.printable import printable

if TYPE_CHECKING:
    from advisor.calibration import Calibration
    from advisor.config import Config
    from advisor.rules.base import Rule, Safety

F = TypeVar("F", bound=Callable[..., Any])

PYPROJECT = "pyproject.toml"

# In the folder that the XDG base directory specification has for what a user's programs learn.
CALIBRATION_FILE = "calibration.jsonl"

_OUR_TABLE = re.compile(r"^\s*\[\s*tool\s*\.\s*profile-train\b", re.MULTILINE)


_configured = partial(click.option, cls=Listed, heading="Configuration")
_trial = partial(click.option, cls=Listed, heading="Trials")
_for_goals = partial(click.option, cls=Listed, heading="Goals")

CONFIG = _configured(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TOML file of goals, limits and rules.  [[tool.profile-train] of the nearest pyproject.toml]",
)
RULES = _configured(
    "--rules",
    "own_rules",
    type=click.Path(path_type=Path, exists=True),
    help="Rules of your own: a file, or a folder of files. Their code is run.",
)
CALIBRATION = _configured(
    "--calibration",
    type=click.Path(path_type=Path),
    envvar="PROFILE_TRAIN_CALIBRATION",
    help="File in which verdicts of trials are kept, and predictions are held to them.  "
    "[$PROFILE_TRAIN_CALIBRATION, or profile-train/calibration.jsonl in $XDG_DATA_HOME]",
)


class _Written(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A goal, by its name: read as it is in a configuration file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        # Imported only now: the program starts that much sooner.
        from advisor.declared import READERS

        try:
            return READERS[self.name](value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _goal(flag: str, metavar: str, text: str) -> Callable[[F], F]:
    return _for_goals(flag, type=_Written(flag.strip("-").replace("-", "_")), metavar=metavar, help=text)


_GOALS = (
    _goal("--goal", "NAME", "What counts most: throughput, memory, cost or latency."),
    _goal("--target-batch", "N", "Wanted samples per optimizer step, over all GPUs."),
    _for_goals(
        "--capacity",
        is_flag=True,
        default=None,
        help="A larger batch or model is wanted: let memory rules speak.",
    ),
    _goal("--quality", "METRIC>=VALUE", "When the training is done: val_acc>=0.76."),
    _goal("--gpu-price", "PRICE", "Of a GPU hour, to put gains into money."),
    _goal("--mtbf", "TIME", "Mean time between failures of the job: 2h."),
    _goal("--restart", "TIME", "From a failure until training goes on: 5m."),
    _goal("--spot-discount", "SHARE", "Of interruptible machines: 65%."),
    _goal("--queue-share", "SHARE", "Of the time for which GPUs wait for each other or for a job: 15%."),
    _for_goals(
        "--validation",
        metavar="FILE",
        help="The quality after each validation, higher is better: a number a line, or a column of a CSV, FILE:COLUMN.",
    ),
)


def goals(command: F) -> F:
    """The options that declare what a training is for; the command takes them as keywords, None where not given."""
    for option in reversed(_GOALS):
        command = option(command)
    return command


def read_as(quantity: str) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """The callback of an option that advisor.plan.quantities reads, by the function's name: imported only then."""

    def read(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
        from advisor.plan import quantities

        if value is None:
            return None
        try:
            return float(getattr(quantities, quantity)(value))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def _kinds(_ctx: click.Context, _option: click.Parameter, allow: str) -> tuple[Safety, ...]:
    """Exact changes, and the kinds that are named beside: "numerics, memory"."""
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


class How(NamedTuple):
    """What the options of trials say."""

    allowed: tuple[Safety, ...]
    processes: int
    steps: int | None
    covered: tuple[str, ...]
    in_place: bool
    yes: bool


def trials(command: F) -> F:
    """The options of commands that run the program again."""
    for option in reversed(_TRIALS):
        command = option(command)
    return command


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


def configuration(config: Path | None, own_rules: Path | None = None) -> Config | None:
    """The configuration that was asked for, or lies above; None if there is none. A mistake in one that nobody asked
    for is told, and it is left out.

    Raises:
        ProfilerError: something in the one that was asked for is wrong.
    """
    found = None
    with contextlib.suppress(OSError):  # the current folder may be gone, or not ours to read
        found = None if config else _nearest(Path.cwd())
    if config is None and found is None and own_rules is None:
        return None
    # Imported only now: rules take a while to load, and the program waits for it.
    from advisor.config import configure

    if found is not None:
        try:
            return configure(found, own_rules)
        except ProfilerError as error:
            click.echo(f"profile-train: {printable(str(error))} Nothing of it is used.", err=True)
    return configure(config, own_rules)


def rules(config: Path | None, own_rules: Path | None) -> tuple[Rule, ...]:
    """The rules of that configuration; what could not be loaded is told."""
    from advisor.config import configure

    found = (configuration(config, own_rules) or configure()).rules
    for line in found.broken:
        click.echo(f"profile-train: {printable(line)}", err=True)
    return found.rules


def calibration_file(given: Path | None) -> Path | None:
    """The file that was named, or the user's own; None where there is no home."""
    if given is not None:
        return given
    with contextlib.suppress(RuntimeError):
        data = Path(os.environ.get("XDG_DATA_HOME", ""))
        return (data if data.is_absolute() else Path.home() / ".local" / "share") / "profile-train" / CALIBRATION_FILE
    return None


def past(given: Path | None) -> Calibration:
    """What has been tried so far; what of it cannot be read is told."""
    # Imported only now: the program starts that much sooner.
    from advisor.calibration import Calibration
    from advisor.calibration_file import read

    file = calibration_file(given)
    if file is None:
        return Calibration()
    found, note = read(file)
    if note:
        click.echo(f"profile-train: {printable(note)}", err=True)
    return found


def _nearest(folder: Path) -> Path | None:
    """The nearest pyproject.toml, if it has a table for us. One beside a recording came with it and is passed over: it
    could name rules, which are code."""
    for each in (folder, *folder.parents):
        file = each / PYPROJECT
        if file.is_file() and not any(each.glob("run-*.db")):
            return file if _OUR_TABLE.search(file.read_text(encoding="utf-8", errors="replace")) else None
    return None
