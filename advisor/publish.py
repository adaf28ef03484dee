"""Turn a run folder into its report: load, judge, build, and write all its forms next to the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.atomic_write import keep
from advisor.compare.comparison import Comparison
from advisor.judging.calibration import Calibration
from advisor.judging.judge import judge
from advisor.metrics.base import Goals, Metrics
from advisor.report.build import build_report
from advisor.report.render import html, markdown, result_json
from advisor.report.report import Report
from advisor.runs import traces
from advisor.runs.load import load
from advisor.runs.profile import Profile
from advisor.settings.own_rules import RuleSet
from advisor.settings.own_rules import load as load_rules
from advisor.verify import kept
from profiler.errors import ProfilerError
from profiler.schema import Problem

if TYPE_CHECKING:
    from advisor.fleet.history import PastRun


def report_of(
    folder: Path,
    goals: Goals | None = None,
    rules: RuleSet | None = None,
    past: Calibration | None = None,
    profile: Profile | None = None,
    fleet: Path | None = None,
) -> Report:
    """Return the report on a run, or on its `profile` where that is loaded; nothing is written.

    Without `rules`, the built-in and installed ones judge the run. Trials in `past` set the width of intervals and the
    confidence in models. `fleet` is a data set in which earlier runs of the same script are found.

    Raises:
        ProfilerError: the folder holds no recording, or none that can be read.
    """
    profile, chosen = profile or load(folder), rules or load_rules()
    notes = [Problem(time=0.0, source="rules", message=line) for line in chosen.broken]
    try:
        verified = kept.read(folder)
    except ProfilerError as error:
        verified = {}
        notes.append(Problem(time=0.0, source="verify", message=str(error)))
    history: tuple[PastRun, ...] = ()
    if fleet is not None and profile.runs:
        from advisor.fleet.history import past_runs  # only now: it takes DuckDB

        try:
            history = past_runs(fleet, profile.runs[0])
        except ProfilerError as error:
            notes.append(Problem(time=0.0, source="fleet", message=str(error)))
    profile = replace(profile, problems=(*profile.problems, *notes))
    metrics = Metrics(profile, goals)
    judgment = judge(metrics, chosen.rules, past=past, tried=kept.tried(verified.values()))
    return replace(build_report(profile, judgment, metrics, verified, past), history=history)


def report_of_traces(
    traced: Sequence[Path] | Profile,
    goals: Goals | None = None,
    rules: RuleSet | None = None,
    past: Calibration | None = None,
) -> Report:
    """Return the report on traces that torch.profiler wrote, one file per rank, or on their profile.

    Nothing is written.

    Raises:
        ProfilerError: none of the traces can be read.
    """
    chosen = rules or load_rules()
    profile = traced if isinstance(traced, Profile) else traces.load(traced)
    notes = [Problem(time=0.0, source="rules", message=line) for line in chosen.broken]
    profile = replace(profile, problems=(*profile.problems, *notes))
    metrics = Metrics(profile, goals)
    return build_report(profile, judge(metrics, chosen.rules, past=past), metrics, past=past, imported=True)


def publish(
    folder: Path,
    goals: Goals | None = None,
    out: Path | None = None,
    rules: RuleSet | None = None,
    past: Calibration | None = None,
    fleet: Path | None = None,
) -> Report:
    """Write result.json, report.html and report.md into the run folder, or into `out`, and return the report.

    Raises:
        ProfilerError: see `report_of` and `write`.
    """
    report = report_of(folder, goals, rules, past, fleet=fleet)
    write(report, out or folder, f"profile-train report {folder} --out FOLDER")
    return report


def write(report: Report, folder: Path, elsewhere: str, compared: Comparison | None = None) -> None:
    """Write all forms of a report, with a comparison if there is one, into `folder`, each whole or not at all.

    `elsewhere` is the command that chooses another folder. A file that profile-train did not write keeps its name, and
    the report's file gets another. The files have mode 0600, whatever the umask: a report reveals paths, arguments and
    the machine, so sharing it is up to the user.

    Raises:
        ProfilerError: not all of them could be written.
    """
    forms = {
        "result.json": result_json.render(report, compared),
        "report.html": html.render(report, compared),
        "report.md": markdown.render(report, compared),
    }
    failures = []
    for name, text in forms.items():
        try:
            keep(folder, name, text)
        except ProfilerError as error:
            failures.append(error.message)
    if failures:
        raise ProfilerError(failures[0], f"Make room, or put it elsewhere: {elsewhere}")
