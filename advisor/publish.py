"""From a run folder to its report: load, judge, build, and write all forms of it beside the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from advisor import traces
from advisor.build_report import build_report
from advisor.calibration import Calibration
from advisor.judge import judge
from advisor.load import load
from advisor.metrics.base import Goals, Metrics
from advisor.own_rules import RuleSet
from advisor.own_rules import load as load_rules
from advisor.render import html, markdown, result_json
from advisor.report import Report
from advisor.verify import kept
from advisor.whole import whole
from profiler.errors import ProfilerError
from profiler.schema import Problem


def report_of(
    folder: Path, goals: Goals | None = None, rules: RuleSet | None = None, past: Calibration | None = None
) -> Report:
    """The report on a run; nothing is written. Without `rules`, ours and the installed ones judge it; `past` trials say
    how sure they may be.

    Raises:
        ProfilerError: there is no recording in the folder, or none that can be read.
    """
    profile, chosen = load(folder), rules or load_rules()
    notes = [Problem(time=0.0, source="rules", message=line) for line in chosen.broken]
    try:
        verified = kept.read(folder)
    except ProfilerError as error:
        verified = {}
        notes.append(Problem(time=0.0, source="verify", message=str(error)))
    profile = replace(profile, problems=(*profile.problems, *notes))
    metrics = Metrics(profile, goals)
    judgement = judge(metrics, chosen.rules, past=past, tried=kept.tried(verified.values()))
    return build_report(profile, judgement, metrics, verified, past)


def report_of_traces(
    paths: Sequence[Path],
    goals: Goals | None = None,
    rules: RuleSet | None = None,
    past: Calibration | None = None,
) -> Report:
    """The report on traces that torch.profiler wrote, a file a rank; nothing is written.

    Raises:
        ProfilerError: none of them can be read.
    """
    chosen = rules or load_rules()
    profile, traced = traces.load(paths)
    notes = [Problem(time=0.0, source="rules", message=line) for line in chosen.broken]
    profile = replace(profile, problems=(*profile.problems, *notes))
    metrics = Metrics(profile, goals)
    return build_report(profile, judge(metrics, chosen.rules, past=past), metrics, past=past, traces=traced)


def publish(
    folder: Path,
    goals: Goals | None = None,
    out: Path | None = None,
    rules: RuleSet | None = None,
    past: Calibration | None = None,
) -> Report:
    """Write result.json, report.html and report.md into the run folder, or into `out`.

    Raises:
        ProfilerError: as `report_of` or `write`.
    """
    report = report_of(folder, goals, rules, past)
    write(report, out or folder, f"profile-train report {folder} --out FOLDER")
    return report


def write(report: Report, folder: Path, elsewhere: str) -> None:
    """Write all forms of it into `folder`, each whole or not at all; `elsewhere` is the command that chooses another.

    They are of mode 0600, whatever the umask: a report tells paths, arguments and the machine, so sharing it is left to
    the user.

    Raises:
        ProfilerError: not all of them could be written.
    """
    forms = {
        "result.json": result_json.render(report),
        "report.html": html.render(report),
        "report.md": markdown.render(report),
    }
    failures = []
    for name, text in forms.items():
        try:
            with whole(folder / name) as beside:
                beside.write_text(text, encoding="utf-8", newline="\n")
        except ProfilerError as error:
            failures.append(error.message)
    if failures:
        raise ProfilerError(failures[0], f"Make room, or put it elsewhere: {elsewhere}")
