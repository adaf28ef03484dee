"""Decide what to do next after a report: a kind that programs read and `wording` puts into a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.judging.judge import ACTION_EXPECTED, NOISE_MARGIN, SUGGEST_EXPECTED, WINDOW_TOO_SHORT
from advisor.metrics.step import typical_step_uncertainty
from advisor.report.report import Recommendation, Report

LARGE_OTHER = 2 * ACTION_EXPECTED
"""Share of the step from which everything else is worth a look. Removing half of it would be worth acting on."""

BLIND = 0.5
"""Share of the step that noise hides from which a run shows nothing: few changes gain more (assumption)."""

UNEXPLAINED = ("other", "data_wait", "sync", "communication", "gc", "loader_overhead")
"""Phases in which nothing is trained. If one of them is the largest, the run is not in order."""

HOT_LINE = "hot-line"
"""The rule that names a line outside model, loader and optimizer."""

Kind = Literal["no_steps", "too_few_steps", "act", "unsure", "unexplained", "too_noisy", "nothing"]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What follows from a run."""

    kind: Kind
    rule: str | None = None
    """The advice to begin with ("act"), or the most likely gain ("unsure")."""
    phase: str | None = None
    """The largest phase, if no finding explains it ("unexplained")."""


def conclude(report: Report) -> Conclusion:
    """Return what follows from the run."""
    steps = report.steps
    first = next((item for item in report.advice if item.severity != "info" and not item.tried_in_vain), None)
    if not steps or not steps.count:
        return Conclusion("act", first.rule) if first and report.imported else Conclusion("no_steps")
    if steps.mean is None:
        return Conclusion("too_few_steps")
    if first:
        return Conclusion("act", first.rule)
    if likely := _most_likely(report):
        return Conclusion("unsure", likely.rule)
    largest = report.largest_phase
    if largest and largest.name in UNEXPLAINED and (largest.share or 0.0) >= LARGE_OTHER:
        return Conclusion("unexplained", phase=largest.name)
    return Conclusion("too_noisy" if (hidden_gain(report) or 0.0) >= BLIND else "nothing")


def too_short(report: Report) -> Recommendation | None:
    """Return the advice to record again for reliable timings, if it was given."""
    return next((item for item in report.advice if item.rule == WINDOW_TOO_SHORT), None)


def hidden_gain(report: Report) -> float | None:
    """Return the share of the step below which gains do not show; None if scatter is not the trouble."""
    short = too_short(report)
    facts = short.evidence if short else ()
    return next((NOISE_MARGIN * m.value for m in facts if m.metric == typical_step_uncertainty.name), None)


def _most_likely(report: Report) -> Recommendation | None:
    """Return the first piece of information with a gain worth trying; they are ordered by gain.

    Where the largest phase is everything else, the line that takes it comes first: other changes leave it as it is.
    """
    worth = [
        item
        for item in report.advice
        if item.in_plan and item.in_plan.expected >= SUGGEST_EXPECTED and not item.tried_in_vain
    ]
    largest = report.largest_phase
    if largest is not None and largest.name == "other":
        worth.sort(key=lambda item: item.rule != HOT_LINE)
    return worth[0] if worth else None
