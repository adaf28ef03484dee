"""What a report says about the whole run, in sentences."""

from collections import Counter
from pathlib import PurePath

from advisor.judging.judge import Estimate
from advisor.metrics.base import Need
from advisor.models.effects import LAUNCHED
from advisor.report.code import LEAST_SAMPLES, NAMED_LOW
from advisor.report.conclusion import LARGE_OTHER, NAMED_BY_STACKS, conclude, hidden_gain, named, too_short
from advisor.report.report import NOTHING, Recommendation, Report
from advisor.rules.base import Measurement
from advisor.units import digits, inline, listed, quantity, seconds, share, span

LARGEST_SHARE = 10.0
"""If the limit is a share, a value above 1 is shown in percent, too, up to this value; above it, as a ratio."""

COSTLY = 3.0
"""Multiple of its budget above which the cost of a recording gets a comment."""

SHORT = 60.0
"""Length of a run, in seconds, below which the fixed cost of a recording is not yet amortized."""

NOTABLE_TRACED = 0.05
"""Share of a trace's time from which a part is mentioned in the first sentence."""

COMPUTING = 0.5
"""Share of the step in model and optimizer from which computing is the limit."""

LEAST_BACKWARD = 0.25
"""Least ratio of the backward to the forward pass if gradients are needed: usually 2, and less if Python takes most of
the forward pass (assumption).
"""

_WITHOUT_GRADIENTS = (
    " The backward pass takes only {}, so most of the forward pass runs without gradients: where it gets the same "
    "inputs again with the same weights, compute its outputs once."
)

_OUT_OF_MEMORY = "The program ran out of memory. "

_ENDED = {"failed": "the run failed", "killed": "the run was killed", "attached": "the recording ended"}

_INSIDE = {
    "data_wait": "waiting for data",
    "loader_overhead": "fetching ready batches",
    "h2d": "copying to the GPU",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer",
    "communication": "in communication between ranks",
    "sync": "waiting for the GPU, which had no queued work",
    "gc": "in Python's garbage collector",
}

_INSIDE_UNWATCHED = "outside the model and its optimizer"

_FORWARD_UNSEEN = "in code that no phase covers. It may include the forward pass: no model was called as model(x)"

_UNWATCHED = " Its DataLoader could not be observed: waiting for data may be part of that."

_BETWEEN_INSIDE = {
    "evaluation": "evaluation",
    "checkpoint_save": "saving",
    "epoch_start": "epoch starts",
    "epoch_settling": "slow first steps of epochs",
    "epoch_gap": "time between epochs",
}

_NOT_EXPLAINED = "the largest part of the step, and no rule explains it"
_REGION = 'add `from profiler import region`, wrap parts of the loop in `with region("NAME"):`, and record again'
_NEXT = {
    "other": f"That is {_NOT_EXPLAINED}. To see what it is, {_REGION}.",
    "data_wait": f"That is {_NOT_EXPLAINED}. To see what a batch is waiting for, time the dataset and the collate "
    "function, or record again with num_workers=0. With Ray Data, ds.stats() names the slow operator.",
    "loader_overhead": f"That is {_NOT_EXPLAINED}. Check the size of a batch: it is copied between processes.",
    "communication": f"That is {_NOT_EXPLAINED}. Compare the ranks below: a slow rank makes the others wait.",
    "sync": f"That is {_NOT_EXPLAINED}. To see which code waits, {_REGION}.",
    "gc": f"That is {_NOT_EXPLAINED}. Call gc.freeze() before the loop, and record again.",
}
"""What to do if nothing explains the largest phase."""

_NEXT_TRACE = (
    "No rule explains the largest part of the step. Trace some whole steps after warm-up, with Python's stacks: "
    "torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=3), with_stack=True)."
)

_UNSEEN = (
    "No torch optimizer made a step while the run was recorded. In a training loop without a torch optimizer, call "
    "profiler.step() at the end of each iteration."
)

_KEPT_OUT = (
    " Python's options -I, -E and -S prevent recording, and so does starting the program without the parent's "
    "environment variables."
)

_IDLE = {
    "idle_data": "because the host fetched a batch",
    "idle_sync": "because the host waited for the GPU",
    "idle_launch": "because the host launched kernels late",
    "idle_queued": "although work was queued",
}

_UNMARKED = "The trace marks no steps, so the time of a step is unknown: call prof.step() once per iteration."

_NEEDS: dict[Need | None, tuple[str, str, str]] = {
    Need.GPU: ("needs", "need", "a GPU to train on"),
    Need.RANKS: ("needs", "need", "several ranks"),
    Need.DECLARATION: ("needs", "need", "a goal to be declared (profile-train report --help-all)"),
    Need.RUN: ("needs", "need", "something that this run did not show"),
    None: ("is", "are", "switched off"),
}
"""Why rules could not be checked: the verb for one rule, the verb for several, and the rest."""

_NEEDS_OF_TRACES = {
    **_NEEDS,
    Need.RUN: ("needs", "need", "data that a trace does not contain, such as GPU samples and the program's settings"),
}


def diagnosis(report: Report) -> str:
    """Return where the time goes, after a note if memory ran out."""
    return _OUT_OF_MEMORY + _diagnosis(report) if report.out_of_memory else _diagnosis(report)


def _diagnosis(report: Report) -> str:
    steps = report.steps
    if report.imported:
        return _of_traces(report)
    if not steps or not steps.count:
        clause = f" before {_ENDED[report.run.ended]}" if report.run.ended in _ENDED else ""
        return f"No training step was seen{clause}, so there is nothing to analyze yet."
    if steps.mean is None:
        return f"Training steps seen: {steps.count:,}. That is too few for conclusions."
    return _of_steps(report, steps.mean)


def _of_steps(report: Report, mean: float) -> str:
    """Return what takes most of a step."""
    largest = report.largest_phase
    unnamed = report.imported and largest is not None and largest.name == "other"
    if largest is None or not largest.share or unnamed:
        return f"A step{_ranks(report)} takes {seconds(mean)}."
    inside = _INSIDE[largest.name] if largest.name != "other" else _other(report)
    caution = _UNWATCHED if report.loader_watched is False else ""
    place = named(report)
    start = f"A step{_ranks(report)} takes {seconds(mean)}"
    if place and report.code and place in report.code.places:
        return f"{start}; {share(place.share)} of it is {place.name} in {place.where}.{caution}"
    if place and report.code:
        of_workers = place in report.code.workers
        whole = "making a batch is" if of_workers else f"the run is {_BETWEEN_INSIDE[place.phase]}:"
        inside += f"; {share(place.share)} of {whole} {place.name} in {place.where}"
    return f"{start}, {share(largest.share)} of it {inside}.{caution}"


def _ranks(report: Report) -> str:
    return f" on {report.run.ranks:,} ranks" if report.run.ranks > 1 else ""


def guidance(report: Report) -> str:
    """Return what to do first, in a sentence."""
    if report.imported and report.steps and report.steps.mean is None:
        return ""
    conclusion = conclude(report)
    item = report.recommended(conclusion.rule)
    match conclusion.kind:
        case "no_steps" | "unexplained" if report.imported and (warning := too_short(report)):
            return warning.finding.advice.then
        case "no_steps":
            return _UNMARKED if report.imported else _why_unseen(report)
        case "too_few_steps":
            return ""
        case "act" if item:
            return _begin(item, _named(report, item), bool(busy(report)))
        case "unsure" if item:
            gain = item.finding.in_plan
            if too_short(report) is None and not busy(report) and gain and gain.low > 0:
                # Only the cap of a rule demotes such a gain; rules that change what is computed have one.
                return f"No change worth making was found, unless results may change: {_named(report, item)}."
            return f"Not sure yet: {_doubt(report)}. Most likely gain: {_named(report, item)}."
        case "unexplained" if report.imported:
            return _NEXT_TRACE
        case "unexplained":
            if (place := named(report)) is not None:
                return f"Look at {place.name} in {place.where} first: no rule explains it."
            return _NEXT[conclusion.phase or "other"] if report.loader_watched is not False else _NEXT["other"]
        case "too_noisy":
            return "Timings are too noisy to find anything. Record again, longer or on an idle machine."
    return _nothing(report)


def busy(report: Report) -> str:
    """Return a warning that other programs have slowed the run down; empty if they have not."""
    cores = report.cores
    if cores is None or not cores.is_crowded:
        return ""
    usage = f"Other programs used {digits(cores.others)} of {cores.cores} cores"
    return f"{usage}: on an idle machine, timings and gains may differ. Record again there."


def _other(report: Report) -> str:
    """Return where the time of the phase "other" may be: outside everything that was observed."""
    phase_names = {phase.name for phase in report.phases if phase.share is not None}
    if "forward" not in phase_names:
        return _FORWARD_UNSEEN
    return "outside the model, its loader and its optimizer" if report.loader_watched else _INSIDE_UNWATCHED


def forecast(report: Report) -> str:
    """Return a sentence with the step time now and after the plan; empty if the plan makes nothing faster."""
    if not report.before or not report.after or report.after.expected >= report.before:
        return ""
    return f"{_what_a_step_is(report)}: {seconds(report.before)} now, {seconds(report.after.expected)} after the plan."


def inside_other(report: Report) -> str:
    """Return how to look into the phase "other"; empty unless it is a large part of the step."""
    other = next((phase for phase in report.phases if phase.name == "other"), None)
    if other is None or report.imported or (other.share or 0.0) < LARGE_OTHER or conclude(report).phase == "other":
        return ""
    unseen = all(phase.share is None for phase in report.phases if phase.name == "forward")
    hint = " The forward pass may be in it: no model was called as model(x)." if unseen else ""
    sentence = f"{other.label} takes {share(other.share or 0.0)} of the step.{hint}"
    if report.code and report.code.hottest(*NAMED_BY_STACKS["other"]):
        return sentence if hint else ""
    return f"{sentence} To see what it is, {_REGION.replace('parts', 'more parts', 1) if report.regions else _REGION}."


def assumed(report: Report) -> str:
    """Return a sentence on what is assumed for undeclared goals; empty if all that matter were declared."""
    assumptions = [
        *(["throughput matters most"] if report.goals.goal is None else []),
        *(["no larger batch or model is needed"] if not report.goals.more_memory else []),
        *(["the quality must not change"] if report.goals.quality is None else []),
    ]
    return f"Assumed because not declared: {listed(assumptions)}." if assumptions else ""


def unanswered(report: Report) -> str:
    """Return how many rules could not be checked, and what they need; empty if all could."""
    needs = Counter(check.need for check in report.checks("not_measured"))
    if not needs:
        return ""
    parts = [
        f"{needs[need]} {singular if needs[need] == 1 else plural} {rest}"
        for need, (singular, plural, rest) in (_NEEDS_OF_TRACES if report.imported else _NEEDS).items()
        if needs[need]
    ]
    return f"{needs.total()} of {len(report.checked)} rules could not be checked: {listed(parts)}."


def not_measured(report: Report) -> list[tuple[str, str, list[str]]]:
    """Return what was not measured, how to measure it and the rules that need it; what needs a GPU comes last."""
    by_remedy: dict[tuple[str, str], list[str]] = {}
    for check in sorted(report.checks("not_measured"), key=lambda check: check.need is Need.GPU):
        by_remedy.setdefault((check.why, check.remedy or ""), []).append(check.rule.id)
    return [(reason, remedy, rules) for (reason, remedy), rules in by_remedy.items()]


def remarks(report: Report) -> str:
    """Return remarks on the whole run, in one line: the cost of recording, and how many rules could not be checked."""
    parts = []
    if report.overhead.fraction is not None:
        parts.append(f"Recording cost {share(report.overhead.fraction)}{_costly(report)}.")
    unchecked = len(report.checks("not_measured"))
    if unchecked and report.steps and report.steps.count:
        parts.append(f"{unchecked} of {len(report.checked)} rules could not be checked: the report says why.")
    if crashes := report.checks("crashed"):
        parts.append(f"Failed: {', '.join(check.rule.id for check in crashes)}.")
    return " ".join(parts)


def _costly(report: Report) -> str:
    """Return a comment on a recording that cost too much; in a short run, most of the cost is the start."""
    cost = report.overhead
    if cost.fraction is None or cost.fraction <= COSTLY * cost.budget:
        return ""
    if (report.run.duration or 0.0) < SHORT:
        return f" of this short run; for a longer run the limit is {share(cost.budget)}"
    return f", above its budget of {share(cost.budget)}: times are longer than without profiling"


def is_nothing(gain: Estimate) -> bool:
    """Return whether a gain reads as zero."""
    return max(abs(gain.low), abs(gain.high)) < NOTHING


def gain_text(gain: Estimate, of: str = "step time") -> str:
    """Return a gain as "40 to 62% less step time", or "between 11% slower and 22% faster"."""
    if is_nothing(gain):
        return "nothing"
    slower, faster = ("slower", "faster") if of == "step time" else (f"more {of}", f"less {of}")
    if gain.high < 0:
        return f"{span(-gain.high, -gain.low)} more {of}"
    if gain.low < 0 < gain.high:
        return f"between {share(-gain.low)} {slower} and {share(gain.high)} {faster}"
    return f"{span(gain.low, gain.high)} less {of}"


def measured_text(fact: Measurement) -> str:
    """Return the value with its unit; as a share if the limit is one."""
    unit, limit = fact.metric.unit, fact.limit
    if unit == "1" and limit is not None and 0 < limit < 1 and 0 <= fact.value <= LARGEST_SHARE:
        return share(fact.value)
    return quantity(fact.value, unit)


def limit_text(fact: Measurement) -> str:
    """Return the relation and the limit, or nothing."""
    return "" if fact.limit is None else f"{fact.relation} {quantity(fact.limit, fact.metric.unit)}"


def _of_traces(report: Report) -> str:
    """Return where the time goes on the rank whose GPU idles most."""
    traces = [trace for trace in report.traces if trace.idle is not None]
    if not traces:
        mean = report.steps.mean if report.steps else None
        several = len(report.traces) > 1
        holds, spans = ("These traces hold", "they span") if several else ("This trace holds", "it spans")
        if mean:
            return f"{holds} no GPU work. {_of_steps(report, mean)}"
        return f"{holds} no GPU work; {spans} {seconds(report.traces[0].fact.seconds)}."
    worst = max(traces, key=lambda trace: trace.idle or 0.0)
    parts = {part.name: part for part in worst.parts}
    clauses = [f"computes for {share(parts['compute'].share)} of the time"]
    for name, verb in (("communication_exposed", "communicates"), ("memory_exposed", "moves memory")):
        if parts[name].share >= NOTABLE_TRACED:
            clauses.append(f"only {verb} for {share(parts[name].share)}")
    if (worst.idle or 0.0) >= NOTABLE_TRACED:
        cause = max(_IDLE, key=lambda name: parts[name].share)
        clauses.append(f"idles for {share(worst.idle or 0.0)}, mostly {_IDLE[cause]}")
    gap = worst.single_gap
    gap_remark = f" One gap of {seconds(gap)} is most of that; it may not repeat." if gap else ""
    rank_suffix = f" of rank {worst.rank}" if len(report.traces) > 1 else ""
    return f"The GPU{rank_suffix} {listed(clauses)}.{gap_remark}"


def _why_unseen(report: Report) -> str:
    """Return why no step was seen: the program's own failure first, then what may have prevented recording."""
    run = report.run
    if run.ended == "failed" and run.exit_status:
        return f"The program ended with exit status {run.exit_status} before it trained: see its own message."
    return _UNSEEN if run.ranks else _UNSEEN + _KEPT_OUT


def _begin(first: Recommendation, what: str, is_busy: bool) -> str:
    """Return the first piece of advice with its gain, measured or predicted, and a caution if the machine was busy."""
    caution = " On an idle machine, its gain may differ." if is_busy else ""
    trial = first.verified
    if trial and trial.verdict.is_kept and trial.removed:
        return f"Begin with this: {what}, for {gain_text(Estimate(*trial.removed))}, as measured.{caution}"
    gains = ((first.finding.in_plan, "step time"), (first.finding.cost, "cost"))
    promise = next((f", for {gain_text(gain, measure)}" for gain, measure in gains if gain and gain.expected > 0), "")
    return f"Begin with this: {what}{promise}.{caution if promise else ''}"


def _named(report: Report, item: Recommendation) -> str:
    """Return the title of advice for use within a sentence, with its line unless the first sentence names it."""
    place = named(report)
    if item.place is None or (place and item.place == (place.file, place.line)):
        return inline(item.title)
    return f"{inline(item.title)} ({PurePath(item.place[0]).name}:{item.place[1]})"


def _doubt(report: Report) -> str:
    if too_short(report) is None:
        return "its predicted gain may be zero"
    return "timings are too noisy" if is_scattered(report) else "too few steps were recorded"


def _nothing(report: Report) -> str:
    """Return that nothing was found, what the limit is, and what could not have been found."""
    limit = _limit(report)
    if too_short(report) is None:
        return f"No change worth making was found.{limit}"
    hidden_share = hidden_gain(report)
    if hidden_share is None:
        return f"No change worth making was found, but too few steps were recorded to be sure.{limit}"
    clause = f"step times vary so much that gains below {share(hidden_share)} would not be visible"
    return f"No change worth making was found; {clause}.{limit}"


def _limit(report: Report) -> str:
    """Return that computing is the limit, if it takes most of the step, and where most of the forward pass is."""
    shares = {phase.name: phase.share or 0.0 for phase in report.phases if phase.name in LAUNCHED}
    computing_share = sum(shares.values())
    if computing_share < COMPUTING or report.imported or report.gpu_hours is not None:
        return ""
    places = report.code.places if report.code and report.code.samples >= LEAST_SAMPLES else ()
    place = next(
        (candidate for candidate in places if candidate.phase == "forward" and candidate.low >= NAMED_LOW), None
    )
    where = f"; most of the forward pass is {place.name} in {place.where}" if place else ""
    backward = shares.get("backward", 0.0)
    gradients = _WITHOUT_GRADIENTS.format(share(backward)) if 0 < backward < LEAST_BACKWARD * shares["forward"] else ""
    return f" Computing is the limit: it takes {share(computing_share)} of a step{where}.{gradients}"


def is_scattered(report: Report) -> bool:
    """Return whether there are enough steps, but their times vary too much to be sure of small gains."""
    return hidden_gain(report) is not None


def _what_a_step_is(report: Report) -> str:
    """Return the name of the step that `before` and `after` refer to."""
    if not report.extended:
        return "A step"
    parts = [_BETWEEN_INSIDE[phase.name] for phase in report.between if phase.share]
    return f"A step with its share of {listed(parts or list(_BETWEEN_INSIDE.values()))}"
