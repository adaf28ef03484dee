"""Options that commands share: how to record, how to try advice, and the criteria for judging a run."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from advisor.cli import completion
from advisor.cli.command import HeadedOption
from profiler.errors import ProfilerError
from profiler.printable import say

if TYPE_CHECKING:
    from advisor.judging.calibration import Calibration
    from advisor.metrics.base import Goals
    from advisor.report.report import Report
    from advisor.rules.base import Rule, Safety
    from advisor.settings.config import Config
    from advisor.verify.trials import TrialChoices

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

PYPROJECT = "pyproject.toml"

_OUR_TABLE = re.compile(r"^\s*\[\s*tool\s*\.\s*profile-train\b", re.MULTILINE)


_configured = partial(click.option, cls=HeadedOption, heading="Configuration")
_for_goals = partial(click.option, cls=HeadedOption, heading="Goals")
_trial = partial(click.option, cls=HeadedOption, heading="Trials")


def added(*options: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a command, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _calibration_file() -> Path | None:
    """Return the user's calibration file, in the data folder of the XDG base directory specification.

    None without a home folder.
    """
    with contextlib.suppress(RuntimeError):
        data = Path(os.environ.get("XDG_DATA_HOME", ""))
        return (data if data.is_absolute() else Path.home() / ".local" / "share") / "profile-train/calibration.jsonl"
    return None


def _kinds(ctx: click.Context, _option: click.Parameter, allow: tuple[str, ...]) -> tuple[Safety, ...]:
    """Return all kinds named in one option or several: "numerics,memory"."""
    names = [name.strip() for name in ",".join(allow).split(",") if name.strip()]
    if not names or ctx.resilient_parsing:  # or the shell only wants completions
        return ()
    from advisor.rules.base import Safety

    known = {kind.value: kind for kind in Safety}
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"{unknown[0]!r} is not a kind of change. Choose from: {', '.join(known)}.")
    return tuple(known[name] for name in names)


CONFIG = _configured(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TOML file with goals, limits and rules.  [[tool.profile-train] of the nearest pyproject.toml]",
)
RULES = _configured(
    "--rules",
    "own_rules",
    type=click.Path(path_type=Path, exists=True),
    help="Your own rules: a file, or a folder of files. Their code is executed.",
)
CALIBRATION = _configured(
    "--calibration",
    type=click.Path(path_type=Path),
    envvar="PROFILE_TRAIN_CALIBRATION",
    # No default: click would abort if the file is unreadable, although only the data of past trials is lost then.
    callback=lambda _context, _option, given: given or _calibration_file(),
    help="File that stores trial results; used to calibrate predictions.  [$PROFILE_TRAIN_CALIBRATION, or "
    "profile-train/calibration.jsonl in $XDG_DATA_HOME]",
)

recording = added(
    click.option("--out", type=click.Path(path_type=Path), help="Run folder.  [profile-train-runs/<time>-<script>]"),
    click.option(
        "--budget",
        type=click.FloatRange(0, 0.5),
        default=0.01,
        help="Share of the run time that profiling may cost.  [0.01]",
    ),
    click.option(
        "--rate", type=click.FloatRange(0.1, 100), default=10.0, help="GPU and host samples per second.  [10]"
    ),
    click.option("--windows/--no-windows", default=True, help="Open short torch.profiler windows."),
    click.option("--stacks/--no-stacks", default=True, help="Sample Python stacks from outside, for file and line."),
    click.option("--no-report", is_flag=True, help="Only record; make the report later with `profile-train report`."),
)
"""The options of a command that records: `out`, `no_report`, and the fields of RecordingOptions."""

trials = added(
    _trial(
        "--allow",
        "allowed",
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
"""The options of a command that runs the program again: `yes`, and fields of TrialChoices."""


class Read(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A type whose values a function reads, or rejects with a ValueError."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the function's result for a text, and anything else unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def quantity(reader: str, name: str = "") -> click.ParamType:  # type: ignore[type-arg]
    """Return the type of the reader of that name in advisor.plan.quantities.

    The help shows `name` instead, if given.
    """

    def read(text: str) -> Any:
        from advisor.plan import quantities

        return getattr(quantities, reader)(text)

    return Read(name or reader, read)


def goal(name: str) -> click.ParamType:  # type: ignore[type-arg]
    """Return the type of a goal, read as in a configuration file."""

    def read(text: str) -> Any:
        from advisor.settings.declared import READERS

        return READERS[name](text)

    return Read(name, read)


_GOALS: dict[str, dict[str, Any]] = {
    "goal": {
        "metavar": "NAME",
        "help": "What matters most: throughput, memory, cost or latency.",
        "shell_complete": completion.goals,
    },
    "target_batch": {"metavar": "N", "help": "Target samples per optimizer step, over all GPUs."},
    "capacity": {
        "type": None,
        "is_flag": True,
        "default": None,
        "help": "You want a larger batch or model: enable memory rules.",
    },
    "quality": {"metavar": "METRIC>=VALUE", "help": "Target quality at which training is done: val_acc>=0.76."},
    "gpu_price": {"metavar": "PRICE", "help": "Price of a GPU-hour, to convert gains into money."},
    "mtbf": {"metavar": "TIME", "help": "Mean time between failures of the job: 2h."},
    "restart": {"metavar": "TIME", "help": "Time from a failure until training continues: 5m."},
    "spot_discount": {"metavar": "SHARE", "help": "Discount of spot instances: 65%."},
    "queue_share": {"metavar": "SHARE", "help": "Share of GPU time spent idle in the queue, e.g. 15%."},
    "validation": {
        "type": None,
        "metavar": "FILE",
        "help": "File with the quality after each validation, higher is better: one number per line, or a column of a "
        "CSV file, FILE:COLUMN.",
        "shell_complete": completion.files,
    },
}
"""The option of each goal, a field of advisor.metrics.base.Goals."""


@dataclass(frozen=True)
class Criteria:
    """The criteria for judging a run, and the goals of the training."""

    found: Config | None
    """The configuration of the named file and rules, or of the nearest file above; None without one."""
    given: dict[str, Any]
    """Goals from the command line, None if not given; they override those of the file."""
    calibration: Path | None

    @cached_property
    def config(self) -> Config:
        """Return the configuration, or the defaults. It loads on first use, because loading rules takes a while."""
        from advisor.settings.config import configure

        return self.found or configure()

    @cached_property
    def goals(self) -> Goals:
        """Return the goals.

        Raises:
            ProfilerError: the validation file cannot be read.
        """
        from advisor.settings.declared import goals

        return goals(self.config.declared(self.given))

    def lenient_goals(self) -> Goals:
        """Return the goals; an unreadable validation file only costs the rule that needs it."""
        from advisor.settings.declared import goals

        try:
            return self.goals
        except ProfilerError as error:
            say(f"{error.message} {error.remedy}")
        declared = self.config.declared(self.given)
        return goals({name: value for name, value in declared.items() if name != "validation"})

    def past(self) -> Calibration:
        """Return all trials so far, and print a note on those that cannot be read."""
        return past(self.calibration)

    def publish(self, folder: Path, goals: Goals) -> Report:
        """Write the report of a run, and return it."""
        from advisor.publish import publish

        return publish(folder, goals, self.config.rules, self.past(), self.config.fleet)

    def trials(self, given: Mapping[str, Any], goals: Goals) -> TrialChoices:
        """Return the choices for trials that are judged by these criteria; `given` are the options of `trials`."""
        from advisor.rules.base import Safety
        from advisor.verify.trials import TrialChoices

        return TrialChoices(
            **{**given, "allowed": (Safety.EXACT, *given["allowed"])},  # exact changes, and the kinds that were named
            goals=goals,
            rules=self.config.rules.rules,
            past=self.past(),
            calibration=self.calibration,
        )


def criteria(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options of a command that judges; it gets them as one argument, `criteria`.

    A mistake in the configuration is reported before anything else happens.
    """

    @wraps(command)
    def judging(config: Path | None, own_rules: Path | None, calibration: Path | None, **given: Any) -> R:
        goals = {name: given.pop(name) for name in _GOALS}
        judges = not given.get("no_report")
        criteria = Criteria(configuration(config, own_rules, judging=judges), goals, calibration)
        return command(criteria=criteria, **given)

    goals = (
        _for_goals(f"--{name.replace('_', '-')}", **{"type": goal(name), **about}) for name, about in _GOALS.items()
    )
    return added(CONFIG, RULES, CALIBRATION, *goals)(judging)


def configuration(config: Path | None, own_rules: Path | None = None, *, judging: bool = True) -> Config | None:
    """Return the requested configuration, or the one of the nearest pyproject.toml; None without one.

    A mistake in one that was not requested is printed, and that configuration is ignored. `judging` works as in
    `configure`.

    Raises:
        ProfilerError: something in the requested configuration is wrong.
    """
    pyproject = None
    with contextlib.suppress(OSError):  # the current folder may be deleted or unreadable
        pyproject = None if config else _nearest(Path.cwd())
    if config is None and pyproject is None and own_rules is None:
        return None
    from advisor.settings.config import configure

    if pyproject is not None:
        try:
            return configure(pyproject, own_rules, found=True, judging=judging)
        except ProfilerError as error:
            say(f"{error} This file is ignored.")
    return configure(config, own_rules, judging=judging)


def configured(config: Path | None, own_rules: Path | None = None, *, judging: bool = True) -> Config:
    """Return that configuration, or the defaults without one."""
    from advisor.settings.config import configure

    return configuration(config, own_rules, judging=judging) or configure(judging=judging)


def rules(config: Path | None, own_rules: Path | None) -> tuple[Rule, ...]:
    """Return the rules of that configuration, and print those that could not be loaded."""
    rule_set = configured(config, own_rules).rules
    for line in rule_set.broken:
        say(line)
    return rule_set.rules


def past(file: Path | None) -> Calibration:
    """Return all trials so far, and print a note on those that cannot be read."""
    from advisor.judging.calibration import Calibration
    from advisor.judging.calibration_file import read

    if file is None:
        return Calibration()
    calibration, note = read(file)
    if note:
        say(note)
    return calibration


def _nearest(folder: Path) -> Path | None:
    """Return the nearest pyproject.toml in this repository, if it has a profile-train table.

    A file next to a recording is skipped: it came with the recording and could name rules, which are code.
    """
    for ancestor in (folder, *folder.parents):
        file = ancestor / PYPROJECT
        if file.is_file() and not any(ancestor.glob("run-*.db")):
            return file if _OUR_TABLE.search(file.read_text(encoding="utf-8", errors="replace")) else None
        if (ancestor / ".git").exists():
            return None
    return None
