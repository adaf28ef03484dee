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
    found = conclude(report)
    item = report.recommended(found.rule)
    what = guidance(report) or RECORD_AGAIN
    if item is None:
        if found.kind == "nothing":
            return NextStep(do="stop", what=what)
        return NextStep(do="look" if found.kind == "unexplained" else "record", what=what)
    change, tried = item.finding.advice.intervention, item.verified
    if tried is not None and tried.verdict is Verdict.FAILED:
        return NextStep(do="change", rule=item.rule, what=what, no_patch=f"Its trial failed: {tried.why}")
    if change is None or report.imported:
        return NextStep(do="change", rule=item.rule, what=what, no_patch="It must be made by hand.")
    text, folder, why = None, None, ""
    try:
        made = patch(change, report.run.command, report.run.cwd, since)
        text, folder = made.text, str(made.folder)
    except NoPatch as no:
        why = str(no)
    if tried is not None and tried.verdict.is_kept:
        return NextStep(do="apply", rule=item.rule, what=what, patch=text, folder=folder, no_patch=why)
    allow = () if change.safety is Safety.EXACT else ("--allow", change.safety.value)
    command = ("profile-train", "verify", "RUN", item.rule, *allow, "--patch", "change.patch", "--yes")
    return NextStep(do="verify", rule=item.rule, what=what, command=command, patch=text, folder=folder, no_patch=why)
