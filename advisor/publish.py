"""Turn a run folder into its report: load, judge, build, and write all its forms next to the recording."""

from __future__ import annotations

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
    profile: Profile,
    folder: Path | None = None,
    goals: Goals | None = None,
    rules: RuleSet | None = None,
    past: Calibration | None = None,
    fleet: Path | None = None,
) -> Report:
    """Return the report on a run, whose `folder` contains its trials, or on traces of torch.profiler.

    Nothing is written. Without `rules`, the built-in and installed ones judge the run. Trials in `past` set the width
    of intervals and the confidence in models. `fleet` is a data set in which earlier runs of the same script are found.
    """
    rule_set = rules or load_rules()
    notes = [Problem(time=0.0, source="rules", message=line) for line in rule_set.broken]
    verified: dict[str, kept.Verified] = {}
    history: tuple[PastRun, ...] = ()
    try:
        verified = kept.read(folder) if folder is not None else {}
    except ProfilerError as error:
        notes.append(Problem(time=0.0, source="verify", message=str(error)))
    if fleet is not None and profile.runs:
        from advisor.fleet.history import past_runs  # imported on use: it needs DuckDB

        try:
            history = past_runs(fleet, profile.runs[0])
        except ProfilerError as error:
            notes.append(Problem(time=0.0, source="fleet", message=str(error)))
    profile = replace(profile, problems=(*profile.problems, *notes))
    metrics = Metrics(profile, goals)
    judgment = judge(metrics, rule_set.rules, past=past, tried=kept.tried(verified.values()))
    report = build_report(profile, judgment, metrics, verified, past, imported=not profile.runs)
    return replace(report, history=history)


def publish(
    folder: Path,
    goals: Goals | None = None,
    rules: RuleSet | None = None,
    past: Calibration | None = None,
    fleet: Path | None = None,
) -> Report:
    """Write result.json, report.html and report.md into the run folder, and return the report.

    Raises:
        ProfilerError: the folder holds no recording, or none that can be read; or see `write`.
    """
    report = report_of(load(folder), folder, goals, rules, past, fleet)
    write(report, folder, f"profile-train report {folder} --out FOLDER")
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
        raise ProfilerError(failures[0], f"Free disk space, or put it elsewhere: {elsewhere}")
