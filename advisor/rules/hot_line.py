"""One function or line of the program takes a large part of every step, and may not be necessary.

profile-train samples Python stacks from outside the program. The frames of each sample show its phase of the step. The
source around the hottest line shows the kind of work: a loop over samples, a generator that makes batches, a model
called with one row at a time or evaluated in each step, decoding, parsing, plotting, a copy, a sleep. If the kind is
unknown, the rule names the line outside model and optimizer that takes most of the step.

The gain is a prediction. In the best case all of the line's time is saved. That time is its share of the samples in a
phase, times the seconds that hooks measured in that phase, plus its share of the time between steps. The prediction
also includes the line's share of garbage collection, the backward pass of the tensors that it computes, and a part of
the rest of a short step: without the line, the rest runs with warmer caches. That part is larger if other programs use
the cores.

The interval combines two uncertainties: the 80 % interval of the share, which follows from the number of samples, and
an assumption, for each kind of work, about how much of the line's time a change removes. For an unknown kind the lower
end is zero, because the line may be needed. If the rule names a function together with one that it calls, the lower end
counts only the time of the called one. The upper end includes other lines of the same kind, such as other calls of
pandas.

Wrong when: the line is the training itself: a loss or a model made of functions instead of modules, or a simulator that
cannot be made faster. A loop over time in which each iteration needs the previous one cannot be batched.

Source: py-spy: Sampling profiler for Python programs, https://github.com/benfred/py-spy
"""

from collections.abc import Sequence
from dataclasses import replace

from advisor.metrics import Metrics, Threshold, between, host, lines, settings, step
from advisor.models.effects import Triple
from advisor.models.state import Effect, Scenario, State
from advisor.rules._line_kinds import IN_WORKERS, KINDS, WORKERS, LineKind
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Measurement, Rule, Severity
from advisor.units import digits, share

RULE = Rule(
    "Speed up the line that takes the time", Area.STALLS, Confidence.HEURISTIC, difficulty=2, cap=Severity.SUGGEST
)

MIN_SHARE = Threshold(
    0.20, "In a healthy step, computing or reading a loss outside the model takes less than this (assumption)."
)

MIN_LOW = Threshold(
    0.10, "Twice the smallest gain worth acting on (5 %), so that half of this share is still worth it."
)

MIN_MEASURED = Threshold(0.15, "Share of the step that hooks measured in its phase: stacks and hooks must agree.")

MIN_SAMPLES = Threshold(10, "With fewer samples, even the interval of the share is inaccurate.")

USUAL_BACKWARD = 3.0
"""Largest ratio of backward to forward time (usually 2): backward time above it belongs to a loss in a loop."""

WARMER: Triple = (0.0, 0.4, 0.65)
"""Share of the rest of the step that is also saved if all work before it is removed: its caches are then warmer.

In 17 programs recorded on a CPU with and without their slow line, forward pass, backward pass and update took 37 to
100 % of their time without it. Divided by the share of the step that was removed, 10 % of the programs saved up to 0.1,
half up to 0.5, and 90 % up to 0.65.
"""

COLDEST = 1e-3
"""Most seconds that cold caches cost a step that has a core to itself: 0.1 to 1.8 ms in those recordings."""

Z_80 = 1.28
"""Half the 80 % interval in standard errors: a gain's ends are its 10th and 90th percentile."""

PHASES = ("other", "forward", "data_wait")
"""Phases of the step that a place may lie in."""

MANY = ("one_row", "evaluation")
"""Kinds for which the number of calls of the model is evidence."""


def when(m: Metrics) -> Evidence | None:
    """If one of the program's own functions or lines takes at least 20 % of the step, does more than call the model,
    and hooks measured at least 15 % in its phase,
    """
    place, sample_count = m[lines.hot_place], m[lines.stack_samples]
    metric = step.gc_fraction if place.kind == "gc" else lines.MEASURED.get(place.phase, step.other_fraction)
    measured_share = m[metric]
    if not lines.is_worth_naming(place, lines.OWN_WORK, on_cpu=bool(m.get(settings.on_cpu))):
        return None
    if place.kind == "evaluation" and (m.get(between.evaluation_share) or 0.0) >= lines.EVALUATES:
        return None  # hooks time it as evaluation, between steps
    if sample_count < m[MIN_SAMPLES] or measured_share < m[MIN_MEASURED]:
        return None
    if place.share < m[MIN_SHARE] or place.low < m[MIN_LOW]:
        return None
    calls = m.get(step.forwards_per_step) if place.kind in MANY else None
    return Evidence(
        (
            Measurement(lines.hot_place_share, place.share, m[MIN_SHARE]),
            Measurement(lines.hot_place_share_low, place.low, m[MIN_LOW]),
            Measurement(metric, measured_share, m[MIN_MEASURED]),
            Measurement(lines.stack_samples, sample_count, m[MIN_SAMPLES]),
            *([Measurement(step.forwards_per_step, calls)] if calls else []),
        ),
        note=f"{place.name} in {place.file}:{place.line}",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then change it according to its kind of work: use whole tensors, move it to loader workers, do it once, or do it
    less often.
    """
    place = m[lines.hot_place]
    kind = KINDS[place.kind or (place.library if place.library in KINDS else "")]
    if place.phase == "data_wait":
        kind = replace(kind, then=kind.then.replace(WORKERS, IN_WORKERS))
    calls = m.get(step.forwards_per_step) if place.kind in MANY else None
    call_note = f" ({digits(calls)} calls per step)" if calls else ""
    # If no forward pass was seen, the line may be the model; on a GPU, the host may only be waiting there.
    is_predictable = m.get(step.forward_fraction) is not None and m[settings.on_cpu]
    call = place.name if place.name.endswith("()") else "..."
    low, expected, high = (share(fraction) for fraction in kind.removed)
    change = (
        Change(language="python", code=kind.code.format(name=call), file=place.file, line=place.line)
        if kind.code
        else Change(language="text", code=kind.then, file=place.file, line=place.line)
    )
    return Advice(
        title=kind.title if kind.what else "",
        then=f"{share(place.share)} of a step is {place.name} in {place.where}{kind.what}{call_note}. {kind.then}",
        changes=(change,),
        basis=f"{low}, {expected} or {high} of the line's time is saved (assumption for this kind of work). Its time "
        "is its share of a phase's samples times the seconds that hooks measured in that phase. Up to 65% of the rest "
        "of the step, at most 1 ms, is also saved, because the rest no longer runs with cold caches (measured on a "
        "CPU).",
        effect=_effect(m, place, kind) if is_predictable else None,
        memory=0,
        risk="Depends on the change: compare the losses of a few steps before and after.",
    )


def _parts_of(m: Metrics, phases: Sequence[str], place: lines.HotPlace) -> Triple:
    """Return the place's share of some phases that hooks measure, from the samples taken in these phases.

    The lower end excludes other work of the outer function. The upper end includes other places of the same known kind:
    a data frame that is converted once is no longer indexed anywhere in the loop.
    """
    metrics = {lines.MEASURED[phase] for phase in phases}
    phase_names = [phase_name for phase_name, metric in lines.MEASURED.items() if metric in metrics]
    sampled_share = sum(m[lines.sampled_phases].get(phase_name, 0.0) for phase_name in phase_names)
    own_share = sum(place.share_in(phase_name) for phase_name in phase_names)
    if not own_share or not sampled_share:
        return 0.0, 0.0, 0.0
    place_share = min(1.0, own_share / sampled_share)
    low, high = lines.interval(place_share, m[lines.stack_samples] * sampled_share, Z_80)
    hot_places = [
        hot_place
        for hot_place in m.get(lines.hot_places) or ()
        if hot_place.kind == place.kind and place.library in lines.KNOWN
    ]
    alike_share = sum(hot_place.share_in(phase_name) for hot_place in hot_places for phase_name in phase_names)
    inner_share = 1.0 if place.kind == "sampler" else place.inner  # everything that a sampler calls is part of it
    return low * inner_share, place_share, min(1.0, high + max(0.0, alike_share - own_share) / sampled_share)


def _effect(m: Metrics, place: lines.HotPlace, kind: LineKind) -> Effect:
    """Return the effect of removing parts of the line's time from each phase that it lies in, and between steps."""
    shares = {phase: _parts_of(m, (phase,), place) for phase in PHASES}
    phase_seconds = {phase: (m.get(lines.MEASURED[phase]) or 0.0) * m[step.step_time_mean] for phase in PHASES}
    total_shares = _parts_of(m, PHASES, place)
    gc_seconds = (m.get(step.gc_fraction) or 0.0) * m[step.step_time_mean]
    excess = _excess(m) if shares["other"][1] and kind.backward else 0.0
    core_use = m.get(host.core_use)
    core_share = min(1.0, core_use.program) if core_use and core_use.is_crowded and core_use.program > 0 else 1.0
    cold_seconds = COLDEST / core_share  # the program gets a part of a core while other programs use the cores
    between_share = m.get(lines.hot_place_between) or 0.0

    def effect(state: State, scenario: Scenario) -> State:
        removed_share = scenario.of(kind.removed)
        removed_shares = {phase: scenario.of(part) * removed_share for phase, part in shares.items()}
        after = state.without("gc", gc_seconds * scenario.of(total_shares) * removed_share)
        for phase in ("other", "forward"):
            after = after.without(phase, phase_seconds[phase] * removed_shares[phase])
        for part in after.between:
            after = after.scaled(part, 1 - between_share * removed_share)
        backward_share = max(removed_shares["forward"] if kind.backward else 0.0, removed_shares["other"] * excess)
        if scenario is Scenario.HIGH:
            backward_share = max(backward_share, excess * removed_share)
        after = after.scaled("backward", 1 - backward_share)
        # Without workers all waiting is serial: making batches faster makes the step faster.
        wait_seconds = phase_seconds["data_wait"] * removed_shares["data_wait"]
        overhead = wait_seconds if place.kind == "sampler" else max(0.0, wait_seconds - after.load)
        overhead = min(overhead, after.phases.get("loader_overhead", 0.0))
        after = after.without("loader_overhead", overhead)
        after = replace(after, load=max(0.0, after.load - (wait_seconds - overhead)))
        saved_share = 1 - after.time / state.time if state.time else 0.0
        # The rest of the step runs with warmer caches.
        rest_seconds = after.compute + after.load
        factor = 1 - min(scenario.of(WARMER) * saved_share, cold_seconds / rest_seconds) if rest_seconds > 0 else 1.0
        phases = {phase: factor * part for phase, part in after.phases.items()}
        return replace(after, phases=phases, load=factor * after.load)

    return effect


def _excess(m: Metrics) -> float:
    """Return the part of the backward pass that the model's forward pass does not explain."""
    forward, backward = m.get(step.forward_fraction), m.get(step.backward_fraction)
    return max(0.0, 1 - USUAL_BACKWARD * forward / backward) if forward and backward else 0.0
