"""Decide the one thing to do after a report: try a change, apply it, make it by hand, record again, look, or stop."""

from advisor.judging.verdict import Verdict
from advisor.patches.patch import patch
from advisor.patches.source import NoPatch
from advisor.report.conclusion import conclude
from advisor.report.report import NextStep, Report
from advisor.report.wording import guidance
from advisor.rules.base import Safety

RECORD_AGAIN = "Record more steps, after warm-up."


def next_step(report: Report, since: float | None) -> NextStep:
    """Return what to do; a file that has changed after `since`, a Unix time, gets no patch."""
    conclusion = conclude(report)
    item = report.recommended(conclusion.rule)
    sentence = guidance(report) or RECORD_AGAIN
    if item is None:
        if conclusion.kind == "nothing":
            return NextStep(do="stop", what=sentence)
        return NextStep(do="look" if conclusion.kind == "unexplained" else "record", what=sentence)
    change, trial = item.finding.advice.intervention, item.verified
    if trial is not None and trial.verdict is Verdict.FAILED:
        return NextStep(do="change", rule=item.rule, what=sentence, no_patch=f"Its trial failed: {trial.why}")
    if change is None or report.imported:
        return NextStep(do="change", rule=item.rule, what=sentence, no_patch="It must be made by hand.")
    text, folder, reason = None, None, ""
    try:
        diff = patch(change, report.run.command, report.run.cwd, since)
        text, folder = diff.text, str(diff.folder)
    except NoPatch as error:
        reason = str(error)
    if trial is not None and trial.verdict.is_kept:
        return NextStep(do="apply", rule=item.rule, what=sentence, patch=text, folder=folder, no_patch=reason)
    options = () if change.safety is Safety.EXACT else ("--allow", change.safety.value)
    command = ("profile-train", "verify", "RUN", item.rule, *options, "--patch", "change.patch", "--yes")
    return NextStep(
        do="verify", rule=item.rule, what=sentence, command=command, patch=text, folder=folder, no_patch=reason
    )
