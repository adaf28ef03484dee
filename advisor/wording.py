"""What a report says of the whole run, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from advisor.judge import ACTION_EXPECTED, NOISE_MARGIN, SUGGEST_EXPECTED, WINDOW_TOO_SHORT, Gain
from advisor.metrics.base import Need
from advisor.metrics.step import typical_step_uncertainty
from advisor.report import NOTHING, Report
from advisor.units import seconds, share, span

LARGE_OTHER = 2 * ACTION_EXPECTED
"""Share of the step from which everything else is worth a look: were half of it gone, that would be worth acting on."""

NOTABLE_TRACED = 0.05
"""Share of a trace's time from which it is worth a word in its first sentence."""

_ENDED = {"failed": "the run failed", "killed": "the run was killed", "attached": "the recording ended"}

_INSIDE = {
    "data_wait": "waiting for data",
    "loader_overhead": "taking batches from the loader",
    "h2d": "copying to the GPU",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer",
    "communication": "in communication between ranks",
    "sync": "waiting for the GPU with nothing queued",
    "gc": "in Python's garbage collector",
    "other": "outside the model, its loader and its optimizer",
}

_INSIDE_UNWATCHED = "outside the model and its optimizer"

_UNWATCHED = " Its DataLoader could not be watched: waiting for data may be part of that."

_BETWEEN_INSIDE = {
    "evaluation": "evaluation",
    "checkpoint_save": "saving",
    "epoch_start": "epoch starts",
    "epoch_settling": "settling after these",
    "epoch_gap": "what lies between epochs",
}

_UNSEEN = (
    "No torch optimizer made a step while the run was recorded. "
    "A training loop without one must call profiler.step() at the end of each iteration."
)

_KEPT_OUT = (
    " Python's options -I, -E and -S keep the recording out, and so does starting the program with a fresh environment."
)

_IDLE = {
    "idle_data": "because the host fetched a batch",
    "idle_sync": "because the host had waited for the GPU",
    "idle_launch": "because the host launched late",
    "idle_queued": "though work was queued",
}

_UNMARKED = (
    "The trace marks no steps, so nothing can be said of one: call prof.step() once in each iteration of the loop."
)

_NEEDS: dict[Need | None, tuple[str, str, str]] = {
    Need.GPU: ("needs", "need", "a GPU to train on"),
    Need.RANKS: ("needs", "need", "several ranks"),
    Need.DECLARATION: ("needs", "need", "a goal to be declared (profile-train report --help-all)"),
    Need.RUN: ("needs", "need", "something that this run did not show"),
    None: ("is", "are", "switched off"),
}
"""Why a rule was not answered, in words: of one, of several, the rest."""

_NEEDS_OF_TRACES = {
    **_NEEDS,
    Need.RUN: ("needs", "need", "what a trace does not hold, such as samples of the GPU and the program's settings"),
}


def diagnosis(report: Report) -> str:
    """Where the time goes."""
    steps = report.steps
    if report.traces:
        return _of_traces(report)
    if not steps or not steps.count:
        return f"No training step was seen{_ending(report)}, so there is nothing to judge yet."
    if steps.mean is None:
        return f"Training steps seen: {steps.count:,}. That is too few to judge by."
    most = max(report.phases, key=lambda phase: phase.share or 0.0, default=None)
    if most is None or not most.share:
        return f"A step takes {seconds(steps.mean)}."
    inside = _INSIDE[most.name] if report.loader_watched or most.name != "other" else _INSIDE_UNWATCHED
    caution = _UNWATCHED if report.loader_watched is False else ""
    return f"A step takes {seconds(steps.mean)}, {share(most.share)} of it {inside}.{caution}"


def counsel(report: Report) -> str:
    """What to do first."""
    if report.traces and (not report.steps or report.steps.mean is None):
        return "" if report.steps else _UNMARKED
    if not report.steps or not report.steps.count:
        return _UNSEEN if report.run.ranks else _UNSEEN + _KEPT_OUT
    if report.steps.mean is None:
        return ""
    first = next((item for item in report.advice if item.severity != "info" and not item.tried_in_vain), None)
    if first is None:
        return _without_plan(report)
    tried = first.verified
    if tried and tried.verdict.is_kept and tried.removed:
        return f"Begin with this: {_inside(first.title)}, for {gain_text(Gain(*tried.removed))}, as measured."
    gains = ((first.in_plan, "step time"), (first.cost, "cost"))
    promise = next((f", for {gain_text(gain, of)}" for gain, of in gains if gain and gain.expected > 0), "")
    return f"Begin with this: {_inside(first.title)}{promise}."


def prospect(report: Report) -> str:
    """What the plan makes of a step, in a sentence; nothing where it makes nothing faster."""
    if not report.before or not report.after or report.after.expected >= report.before:
        return ""
    return f"{_what_a_step_is(report)}: {seconds(report.before)} now, {seconds(report.after.expected)} after the plan."


def inside_other(report: Report) -> str:
    """How to look into what no other phase holds, where that is much of the step; nothing where it is not."""
    other = next((phase for phase in report.phases if phase.name == "other"), None)
    if other is None or (other.share or 0.0) < LARGE_OTHER:
        return ""
    return (
        f"{other.label} takes {share(other.share or 0.0)} of the step. To see what that is, put "
        f'{"more " if report.regions else ""}parts of the loop under: with profiler.region("NAME"). Record again.'
    )


def assumed(report: Report) -> str:
    """What stands in for goals that were not declared, in a sentence; nothing where all that matters was."""
    instead = [
        *(["throughput counts most"] if report.goals.goal is None else []),
        *(["no larger batch or model is wanted"] if not report.goals.more_memory else []),
        *(["the quality must stay as it is"] if report.goals.quality is None else []),
    ]
    return f"Assumed, because not declared: {_listed(instead)}." if instead else ""


def unanswered(report: Report) -> str:
    """How many rules could not be answered, and for want of what; nothing where all could."""
    needs = Counter(check.need for check in report.checks("not_measured"))
    if not needs:
        return ""
    parts = [
        f"{needs[need]} {one if needs[need] == 1 else several} {what}"
        for need, (one, several, what) in (_NEEDS_OF_TRACES if report.traces else _NEEDS).items()
        if needs[need]
    ]
    return f"{needs.total()} of {len(report.checked)} rules could not be checked: {_listed(parts)}."


def gain_text(gain: Gain, of: str = "step time") -> str:
    """As "40 to 62% less step time"; more, where a change takes more of it."""
    if max(abs(gain.low), abs(gain.high)) < NOTHING:
        return "nothing"
    if gain.high < 0:
        return f"{span(-gain.high, -gain.low)} more {of}"
    if gain.low < 0 < gain.high:
        return f"{share(-gain.low)} more to {share(gain.high)} less {of}"
    return f"{span(gain.low, gain.high)} less {of}"


def _of_traces(report: Report) -> str:
    """Of the rank whose GPU idles most."""
    busy = [each for each in report.traces if each.idle is not None]
    if not busy:
        mean = report.steps.mean if report.steps else None
        several = len(report.traces) > 1
        holds, spans = ("These traces hold", "they span") if several else ("This trace holds", "it spans")
        told = f"a step takes {seconds(mean)}" if mean else f"{spans} {seconds(report.traces[0].seconds)}"
        return f"{holds} no GPU work; {told}."
    worst = max(busy, key=lambda each: each.idle or 0.0)
    parts = {part.name: part for part in worst.parts}
    of = [f"computes for {share(parts['compute'].share)} of the time"]
    for name, does in (("communication_exposed", "communicates"), ("memory_exposed", "moves memory")):
        if parts[name].share >= NOTABLE_TRACED:
            of.append(f"only {does} for {share(parts[name].share)}")
    if (worst.idle or 0.0) >= NOTABLE_TRACED:
        why = max(_IDLE, key=lambda name: parts[name].share)
        of.append(f"idles for {share(worst.idle or 0.0)}, mostly {_IDLE[why]}")
    whose = f" of rank {worst.rank}" if len(report.traces) > 1 else ""
    return f"The GPU{whose} {_listed(of)}."


def _ending(report: Report) -> str:
    return f" before {_ENDED[report.run.ended]}" if report.run.ended in _ENDED else ""


def _without_plan(report: Report) -> str:
    """Where nothing is to be done: whether there was nothing to find, or it could not be told."""
    for item in report.advice:
        if item.in_plan and item.in_plan.expected >= SUGGEST_EXPECTED and not item.tried_in_vain:
            return f"Nothing is certain enough to insist on. For information: {_inside(item.title)}."
    nothing = "No change worth making was found"
    short = next((item for item in report.advice if item.rule == WINDOW_TOO_SHORT), None)
    if short is None:
        return f"{nothing}."
    scatter = next((m.value for m in short.evidence if m.metric == typical_step_uncertainty.name), None)
    if scatter is None:
        return f"{nothing}, but too few steps were recorded to be sure."
    return f"{nothing}; this run's steps vary so much that gains below {share(NOISE_MARGIN * scatter)} would not show."


def _what_a_step_is(report: Report) -> str:
    """The step that `before` and `after` are of."""
    if not report.extended:
        return "A step"
    parts = [_BETWEEN_INSIDE[phase.name] for phase in report.between if phase.share]
    return f"A step with its share of {_listed(parts or list(_BETWEEN_INSIDE.values()))}"


def _listed(words: Sequence[str]) -> str:
    """As "a, b and c"."""
    return " and ".join([*([", ".join(words[:-1])] if words[:-1] else []), words[-1]])


def _inside(title: str) -> str:
    """A title within a sentence."""
    return f"{title[:1].lower()}{title[1:]}"
