"""Decide what to do next after a report: a kind that programs read and `wording` puts into a sentence."""

from dataclasses import dataclass, replace
from typing import Literal

from advisor.judging.judge import ACTION_EXPECTED, NOISE_MARGIN, SUGGEST_EXPECTED, WINDOW_TOO_SHORT
from advisor.metrics.lines import HotPlace
from advisor.metrics.step import typical_step_uncertainty
from advisor.report.report import Recommendation, Report

LARGE_OTHER = 2 * ACTION_EXPECTED
"""Share of the step from which a phase of UNEXPLAINED is worth a look: removing half of it would be worth acting on."""

MOST = 0.5
"""Share of the time from which one part is the largest."""

BLIND = 0.5
"""Share of the step hidden by noise from which a run shows nothing: few changes gain more (assumption)."""

UNEXPLAINED = ("other", "data_wait", "sync", "communication", "gc", "loader_overhead")
"""Phases in which nothing is trained. If one of them is the largest, it needs an explanation."""

NAMED_BY_STACKS = {"other": ("other", "logging", "metric"), "data_wait": ("data_wait",)}
"""Phases in which any of the program's own lines is worth naming, and their names in stacks."""

Kind = Literal["no_steps", "too_few_steps", "act", "unsure", "unexplained", "too_noisy", "nothing"]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The conclusion from a run."""

    kind: Kind
    rule: str | None = None
    """The advice to begin with ("act"), or the most likely gain ("unsure")."""
    phase: str | None = None
    """The largest phase, if no finding explains it ("unexplained")."""
    file: str | None = None
    line: int | None = None
    """Where to look first: the line that takes most of the step or the run, else the line of the first advice."""


def conclude(report: Report) -> Conclusion:
    """Return what follows from the run, and where to look first."""
    conclusion = _conclude(report)
    hot_place = named(report)
    item = report.recommended(conclusion.rule)
    place = (hot_place.file, hot_place.line) if hot_place else item.place if item else None
    return replace(conclusion, file=place[0], line=place[1]) if place else conclusion


def named(report: Report) -> HotPlace | None:
    """Return the place in the program's code that takes most of the step, or of the run between steps.

    In a phase of the model, the optimizer or loader workers, only a place of a known kind counts. None if no place is
    worth a sentence.
    """
    largest, code = report.largest_phase, report.code
    if largest is None or code is None or report.imported:
        return None
    place_in_step = code.hottest(*NAMED_BY_STACKS.get(largest.name, ()))
    if place_in_step is None and largest.name == "data_wait":
        place_in_step = code.hottest_of_workers
    place_between = code.hottest_between
    return max(
        (place for place in (place_in_step, place_between) if place), key=lambda place: place.share, default=None
    )


def _conclude(report: Report) -> Conclusion:
    steps = report.steps
    first = next((item for item in report.advice if item.severity != "info" and not item.tried_in_vain), None)
    if not steps or not steps.count:
        return Conclusion("act", first.rule) if first and report.imported else Conclusion("no_steps")
    if steps.mean is None:
        return Conclusion("too_few_steps")
    if first:
        return Conclusion("act", first.rule)
    if candidate := _most_likely(report):
        return Conclusion("unsure", candidate.rule)
    largest = report.largest_phase
    if largest and largest.name in UNEXPLAINED and (largest.share or 0.0) >= LARGE_OTHER and not _computes(report):
        return Conclusion("unexplained", phase=largest.name)
    return Conclusion("too_noisy" if (hidden_gain(report) or 0.0) >= BLIND else "nothing")


def _computes(report: Report) -> bool:
    """Return whether a trace mostly computes although it has no forward phase, as in inference."""
    has_forward = any(phase.name == "forward" and phase.share is not None for phase in report.phases)
    shares = [part.share for trace in report.traces for part in trace.parts if part.name == "compute"]
    return report.imported and not has_forward and bool(shares) and min(shares) >= MOST


def in_order(report: Report) -> tuple[Recommendation, ...]:
    """Return the advice; if none of it is sure, the most likely gain comes before other gains."""
    conclusion = _conclude(report)
    if conclusion.kind != "unsure":
        return report.advice
    index = next((index for index, item in enumerate(report.advice) if item.finding.in_plan), 0)
    first, *rest = sorted(report.advice, key=lambda item: item.rule != conclusion.rule)
    return (*rest[:index], first, *rest[index:])


def too_short(report: Report) -> Recommendation | None:
    """Return the advice to record again for reliable timings, if it was given."""
    return report.recommended(WINDOW_TOO_SHORT)


def hidden_gain(report: Report) -> float | None:
    """Return the share of the step below which gains do not show; None if scatter is not the problem."""
    item = too_short(report)
    facts = item.finding.evidence.facts if item else ()
    return next((NOISE_MARGIN * fact.value for fact in facts if fact.metric == typical_step_uncertainty), None)


def _most_likely(report: Report) -> Recommendation | None:
    """Return the first advice for information with a gain worth trying, in order of gain.

    If a line takes most of the step, advice on it comes first: other changes do not affect it.
    """
    candidates = [
        item
        for item in report.advice
        if (gain := item.finding.in_plan) and gain.expected >= SUGGEST_EXPECTED and not item.tried_in_vain
    ]
    if place := named(report):
        candidates.sort(key=lambda item: item.place != (place.file, place.line))
    return candidates[0] if candidates else None
