"""One function or line of the program takes much of every step, and the model does not need it.

Python stacks are sampled from outside the program. Each sample lies in one phase of the step, by its own frames, and
the source around the hottest line shows what kind of work it is: a loop over samples, a generator that makes batches, a
model called with one row at a time or evaluated in each step, decoding, parsing, plotting, a copy, a sleep. Where the
kind is not known, the line outside model, loader and optimizer that takes most of the step is named.

The gain is a prediction. At most all of the line's time goes: its part of the samples in a phase, of the seconds that
hooks measured there, and its part of what falls between steps. How much of it goes at least is an assumption, by kind;
of an unknown one none: what the line computes may be needed.

Wrong when: the line is the training itself: a loss or a model of functions instead of modules, or a simulator whose
speed is what it is. A loop over time, in which each turn needs the one before, has no batch form.
"""

from __future__ import annotations

from dataclasses import replace

from advisor.metrics.base import Metric, Metrics, Threshold
from advisor.metrics.lines import (
    OUTSIDE,
    Place,
    hot_place,
    hot_place_between,
    hot_place_share,
    hot_place_share_low,
    is_worth_naming,
    sampled_phases,
    stack_samples,
)
from advisor.metrics.settings import on_cpu
from advisor.metrics.step import (
    data_wait_fraction,
    forward_fraction,
    forwards_per_step,
    other_fraction,
    step_time_mean,
)
from advisor.models.state import Effect, Scenario, State
from advisor.rules._line_kinds import KINDS, LineKind
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Measurement, Rule, Severity, Source
from advisor.units import digits, share

MIN_SHARE = Threshold(0.20, "A loss outside the model, or reading it, takes less of a healthy step (assumption).")

MIN_LOW = Threshold(0.10, "Twice the gain worth acting on (5 %), so that half of it is worth having.")

MIN_MEASURED = Threshold(0.15, "Share of the step that hooks measured in its phase: stacks and hooks must agree.")

MIN_SAMPLES = Threshold(10, "With fewer, even the interval of the share is rough.")

MEASURED: dict[str, Metric[float]] = {
    "other": other_fraction,
    "logging": other_fraction,
    "metric": other_fraction,
    "forward": forward_fraction,
    "data_wait": data_wait_fraction,
}
"""What hooks measure of the phases that stacks know."""

MANY = ("one_row", "evaluation")
"""Kinds that the number of calls of the model shows."""


def when(m: Metrics) -> Evidence | None:
    """If one function or line of the program's own takes at least 20 % of the step, is more than the model at work, and
    hooks measured at least 15 % in its phase,
    """
    place, count = m[hot_place], m[stack_samples]
    measure = MEASURED.get(place.phase, other_fraction)
    measured = m[measure]
    if not is_worth_naming(place, OUTSIDE, on_cpu=bool(m.get(on_cpu))):
        return None
    if count < m[MIN_SAMPLES] or measured < m[MIN_MEASURED]:
        return None
    if place.share < m[MIN_SHARE] or place.low < m[MIN_LOW]:
        return None
    calls = m.get(forwards_per_step) if place.kind in MANY else None
    return Evidence(
        (
            Measurement(hot_place_share, place.share, m[MIN_SHARE]),
            Measurement(hot_place_share_low, place.low, m[MIN_LOW]),
            Measurement(measure, measured, m[MIN_MEASURED]),
            Measurement(stack_samples, count, m[MIN_SAMPLES]),
            *([Measurement(forwards_per_step, calls)] if calls else []),
        ),
        note=f"{place.name} in {place.file}:{place.line}",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then do what helps with its kind of work: on whole tensors, in loader workers, once, or less often."""
    place = m[hot_place]
    kind = KINDS[place.kind or (place.library if place.library in KINDS else "")]
    calls = m.get(forwards_per_step) if place.kind in MANY else None
    times = f" ({digits(calls)} calls a step)" if calls else ""
    # Where no forward pass was seen, the line may be the model; on a GPU the host may only wait there.
    known = m.get(forward_fraction) is not None and m[on_cpu]
    name = place.name if place.name.endswith("()") else "..."
    code = (
        Change(language="python", code=kind.code.format(name=name), file=place.file, line=place.line)
        if kind.code
        else Change(language="text", code=kind.then, file=place.file, line=place.line)
    )
    return Advice(
        then=f"{share(place.share)} of a step is {place.name} in {place.where}{kind.what}{times}. {kind.then}",
        changes=(code,),
        basis=f"{_part(kind.removed)} of the line's time goes away (assumption, by the kind of its work). Its time is "
        "its part of the samples of a phase, of the seconds that hooks measured there.",
        effect=_effect(m, place, kind) if known else None,
        memory=0,
        risk="Depends on the change: compare the losses of some steps before and after.",
    )


def _part(removed: tuple[float, float, float]) -> str:
    low, expected, high = (share(part) for part in removed)
    return f"{low}, {expected} or {high}"


def _part_of(m: Metrics, place: Place, phase: str) -> float:
    """Return the part of a phase, as hooks measure it, that is the place's, by the samples taken in that phase."""
    names = [name for name, metric in MEASURED.items() if metric is MEASURED[phase]]
    sampled = sum(m[sampled_phases].get(name, 0.0) for name in names)
    return min(1.0, sum(place.share_in(name) for name in names) / sampled) if sampled else 0.0


def _effect(m: Metrics, place: Place, kind: LineKind) -> Effect:
    """Return the effect of removing parts of the line's time from each phase that it lies in, and between steps."""
    parts = {phase: _part_of(m, place, phase) for phase in ("other", "forward", "data_wait")}
    seconds = {phase: part * (m.get(MEASURED[phase]) or 0.0) * m[step_time_mean] for phase, part in parts.items()}
    passes = parts["forward"] if kind.backward else 0.0
    between = m.get(hot_place_between) or 0.0

    def effect(state: State, scenario: Scenario) -> State:
        removed = scenario.of(kind.removed)
        for phase in ("other", "forward"):
            state = state.without(phase, seconds[phase] * removed)
        for part in state.between:
            state = state.scaled(part, 1 - between * removed)
        state = state.scaled("backward", 1 - passes * removed)
        # Without workers all waiting is serial: making batches faster makes the step faster.
        return replace(state, load=max(0.0, state.load - seconds["data_wait"] * removed))

    return effect


RULE = Rule(
    title="Look at the line that takes the time",
    area=Area.STALLS,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=2,
    sources=(Source("py-spy: Sampling profiler for Python programs", "https://github.com/benfred/py-spy"),),
    cap=Severity.SUGGEST,
)
