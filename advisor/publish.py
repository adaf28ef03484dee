"""From a run folder to its report: load, judge, build, and write all forms of it beside the recording."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from advisor.judge import judge
from advisor.load import load
from advisor.metrics.base import Goals, Metrics
from advisor.render import html, markdown, result_json
from advisor.report import Report, build
from profiler.errors import ProfilerError


def report_of(folder: Path, goals: Goals | None = None) -> Report:
    """The report on a run; nothing is written.

    Raises:
        ProfilerError: there is no recording in the folder, or none that can be read.
    """
    profile = load(folder)
    metrics = Metrics(profile, goals)
    return build(profile, judge(metrics), metrics)


def publish(folder: Path, goals: Goals | None = None) -> Report:
    """Write result.json, report.html and report.md into the run folder; each appears whole or not at all.

    Raises:
        ProfilerError: as `report_of`, or the folder cannot be written to.
    """
    report = report_of(folder, goals)
    forms = {
        "result.json": result_json.render(report),
        "report.html": html.render(report),
        "report.md": markdown.render(report),
    }
    for name, text in forms.items():
        _write(folder / name, text)
    return report


def _write(path: Path, text: str) -> None:
    """Beside its place first, then over it in one move."""
    beside = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            beside = Path(file.name)
            file.write(text)
        beside.chmod(0o644)
        os.replace(beside, path)
    except OSError as error:
        if beside is not None:
            beside.unlink(missing_ok=True)
        raise ProfilerError(
            f"{path} could not be written: {error.strerror or error}.",
            "Make room, or copy the run folder to a place you may write to and run: profile-train report FOLDER",
        ) from error
