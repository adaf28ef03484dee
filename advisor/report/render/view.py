"""Put a report into words and parts to draw, shared by the page, the Markdown and the terminal."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from statistics import median
from typing import NamedTuple

from advisor.judging.judge import Finding
from advisor.models.cost import SAVING_OF
from advisor.report.code import LEAST_SAMPLES, NAMED, NAMED_LOW, HotPlace
from advisor.report.ranks import FEW, OutlierRank
from advisor.report.render.section import BarPart
from advisor.report.render.tried import outcome
from advisor.report.report import LABELS, Note, Phase, Recommendation, Report
from advisor.report.wording import gain_text, is_nothing, limit_text, measured_text
from advisor.rules.base import Change, Measurement
from advisor.runs.environment import Scalar
from advisor.runs.source import is_cell
from advisor.runs.traces import PARTS as TRACED_PARTS
from advisor.runs.traces import TraceSummary
from advisor.units import count, digits, inline, money, quantity, seconds, share, size

_OF_WINDOWS = {"h2d": "h2d_fraction", "communication": "exposed_comm_fraction", "sync": "sync_fraction"}
"""Metrics that measure a phase in profiler windows if steps do not separate it."""


class Tile(NamedTuple):
    """One figure at the head of the page."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """The step time at a point along the plan."""

    label: str
    seconds: float
    note: str = ""
    rule: str = ""
    """The rule whose card has the details."""


ENDINGS = {
    "completed": "completed",
    "failed": "failed",
    "killed": "killed",
    "running": "not ended",
    "attached": "recorded for a while",
}

NOTABLE = 0.01
"""Share of the run above which work between the steps is mentioned in the short forms."""

NOTEBOOK = "ipykernel_launcher"
"""Part of the command of a Jupyter kernel, which does not name the notebook."""

CELL = "notebook cell"
"""Start of the name that the agent gives a cell instead of a file name."""

MEMORY = {
    "params": "Parameters",
    "grads": "Gradients",
    "optim": "Optimizer state",
    "activations": "Activations and the rest",
    "nontorch": "Outside PyTorch",
}
"""Parts of the device's memory."""

MOST_PLACES = 15

MOST_REGIONS = 5
"""Most regions that the terminal shows."""

# Environment rows that hold bytes.
BYTES = ("memory_total", "bytes", "state_bytes", "batch_bytes")


def command(report: Report) -> str:
    """Return the command as you would type it."""
    if any(NOTEBOOK in word for word in report.run.command):
        return "Jupyter notebook"
    return shlex.join(report.run.command) or "(unknown command)"


def name(report: Report) -> str:
    """Return the script's name, for a title."""
    words = (word for word in report.run.command if word.endswith(".py"))
    return PurePath(next(words, next(iter(report.run.command), "run"))).name


def ending(report: Report) -> str:
    """Return how the run ended, with the status or the signal."""
    run = report.run
    if report.imported:
        return "traced by torch.profiler"
    if run.signal is not None:
        return f"{ENDINGS[run.ended]}, signal {run.signal}"
    return f"{ENDINGS[run.ended]}, exit status {run.exit_status}" if run.exit_status else ENDINGS[run.ended]


def facts(report: Report) -> list[str]:
    """Return when the run started, how long it took, how many ranks it had, and what recording cost."""
    run, parts = report.run, []
    if run.started:
        parts.append(run.started.replace("T", " ").replace("+00:00", " UTC"))
    if run.duration is not None:
        parts.append(seconds(run.duration))
    if run.ranks:
        nodes = f" on {run.nodes} nodes" if run.nodes > 1 else ""
        parts.append(f"{count(run.ranks, 'rank')}{nodes}")
    if report.overhead.fraction is not None:
        parts.append(f"recording cost {share(report.overhead.fraction)}")
    return parts


def tiles(report: Report) -> Iterable[Tile]:
    """Yield the figures worth seeing first, without those that were not measured."""
    steps, before, after = report.steps, report.before, report.after
    if steps and steps.mean is not None:
        interval = f"{seconds(steps.interval[0])} to {seconds(steps.interval[1])}" if steps.interval else ""
        yield Tile("Mean step", seconds(steps.mean), interval)
    if steps and steps.p99 is not None and steps.p50 is not None:
        yield Tile("Slowest 1%", seconds(steps.p99), f"median {seconds(steps.p50)}")
    if steps:
        yield Tile("Steps", f"{steps.count:,}", f"{steps.steady:,} steady" if steps.steady else "")
    if (utilization := _measured(report, "gpu_utilization")) is not None:
        sm_active = _measured(report, "sm_active")
        yield Tile(
            "GPU utilization",
            share(utilization),
            "upper bound" if sm_active is None else f"{share(sm_active)} of SMs active",
        )
    if report.gpu_hours is not None:
        price = report.goals.gpu_price
        note = f"{money(report.gpu_hours * price)} at {money(price)} an hour" if price is not None else ""
        yield Tile("GPU-hours", digits(report.gpu_hours), note)
    if before and after and after.expected < before:
        note = f"{seconds(after.low)} to {seconds(after.high)}, {before / after.expected:.1f}x as fast"
        if report.extended:
            note += f"; {seconds(before)} now, including its share of the time between steps"
        yield Tile("Step after the plan", seconds(after.expected), note)


def _measured(report: Report, name: str) -> float | None:
    return next((quantity.value for quantity in report.quantities if quantity.name == name), None)


def phases(report: Report) -> list[Phase]:
    """Return the measured phases that take any time."""
    return [phase for phase in report.phases if phase.share and phase.seconds]


def unmeasured(report: Report) -> list[str]:
    """Return the parts of a step that neither steps nor profiler windows measured."""
    return [inline(phase.label) for phase, part in _in_windows(report) if part is None]


def windowed(report: Report) -> list[str]:
    """Return the parts that only profiler windows measured, with their shares of the step."""
    return [f"{inline(phase.label)} {share(part)}" for phase, part in _in_windows(report) if part is not None]


def _in_windows(report: Report) -> list[tuple[Phase, float | None]]:
    """Return the phases that steps do not separate, and their shares in profiler windows."""
    unseen = [phase for phase in report.phases if phase.share is None]
    return [(phase, _measured(report, _OF_WINDOWS.get(phase.name, ""))) for phase in unseen]


def part_label(name: str) -> str:
    """Return the name of a part of a step for readers."""
    return TRACED_PARTS[name][1] if name in TRACED_PARTS else LABELS[name][0] if name in LABELS else name


def why_slow(report: Report) -> str:
    """Return what made the slowest step slow; empty if none stands out."""
    one_step = report.one_step
    if one_step is None or one_step.slowest is None:
        return ""
    slowest = one_step.slowest
    difference = slowest.seconds - one_step.typical.seconds
    sentence = f"The slowest step takes {seconds(slowest.seconds)}, {seconds(difference)} more than a typical one"
    if one_step.cause is None:
        return f"{sentence}; no single part explains it."
    part, growth = one_step.cause
    host = next((stretch.host for stretch in slowest.stretches if stretch.part == part), "")
    clause = f"; during its longest stretch, the host was in `{host}`" if host else ""
    return f'{sentence}; "{part_label(part)}" alone takes {seconds(growth)} more{clause}.'


def step_lead(report: Report) -> str:
    """Return what made the slowest step slow, or why there is no such step."""
    if report.one_step and report.one_step.typical.number is None:
        return "The trace marks no steps: this is the whole trace."
    single = report.traces and report.traces[0].fact.steps == 1
    return why_slow(report) or (
        "One whole step was traced." if single else "No step differs much from the typical one."
    )


def step_notes(report: Report) -> list[str]:
    """Return what the drawing of single steps leaves out, one sentence each."""
    one_step = report.one_step
    if one_step is None:
        return []
    if not one_step.placed:
        return ["Only the duration of each phase was recorded; the order shown is the usual order of a training loop."]
    notes = ["A step starts and ends when the GPU reaches it; the host may be ahead of the GPU."]
    if not report.imported:
        notes.append("The host is slower while it is profiled.")
    if tick := max(step.tick for step in one_step.steps):
        notes.append(f"Neighboring pieces shorter than {seconds(tick)} are merged.")
    return notes


def places(report: Report) -> list[HotPlace]:
    """Return the hottest places of the program's code in a step."""
    all_places = report.code.places if report.code else ()
    return [place for place in all_places if place.share >= NOTABLE][:MOST_PLACES]


def place(report: Report, of: HotPlace | Change) -> str:
    """Return a file and line, relative to the folder in which the run was started; empty if not known."""
    if of.file is None:
        return ""
    file = CELL if is_cell(of.file) else of.file
    if file.startswith(CELL):
        return f"{file}, line {of.line}" if of.line else file
    path = PurePath(file)
    inside = bool(report.run.cwd) and path.is_relative_to(report.run.cwd)
    short_path = path.relative_to(report.run.cwd) if inside else path
    return f"{short_path}:{of.line}" if of.line else str(short_path)


def phase_name(name: str) -> str:
    """Return the name of a phase that stacks were sampled in."""
    return LABELS[name][0] if name in LABELS else name.capitalize()


def places_text(report: Report) -> list[str]:
    """Return the three hottest places, one line each."""
    hot_places = [place for place in places(report) if place.phase not in ("backward", "optimizer")]
    if not report.code or report.code.samples < LEAST_SAMPLES:
        return []
    return [
        f"{share(hot_place.share)} {hot_place.name} in {place(report, hot_place)}"
        for hot_place in hot_places
        if hot_place.share >= NAMED / 2 and hot_place.low >= NAMED_LOW / 2
    ][:3]


def traced_gpu(report: Report) -> bool:
    """Return whether a trace holds GPU work."""
    return any(trace.parts for trace in report.traces)


def traced_title(report: Report) -> str:
    """Return the title of the section on traces."""
    suffix = "s" if len(report.traces) > 1 else ""
    return "What the GPU does" if traced_gpu(report) else f"The trace{suffix}"


def traced_span(report: Report) -> str:
    """Return what part of the traces is analyzed, in a sentence or two."""
    fact = report.traces[0].fact
    if not report.imported:
        scope = f" of {count(fact.steps, 'step')}" if fact.steps else ""
        return f"One profiler window{scope}, {seconds(fact.seconds)} long. The host is slower while it is profiled."
    if fact.steps is None:
        return f"The trace marks no steps: this is the whole trace, {seconds(fact.seconds)}."
    return f"The trace marks {count(fact.steps, 'whole step')}, {seconds(fact.seconds)} from the first to the last."


def traced_parts(one: TraceSummary) -> list[BarPart]:
    """Return the parts of a trace's time, for a stacked bar."""
    return [BarPart(part.color, part.label, part.share, share(part.share)) for part in one.parts if part.seconds]


def traced_facts(one: TraceSummary) -> list[str]:
    """Return the other facts of a trace, one sentence each; facts that it lacks are left out."""
    sentences = []
    if one.critical:
        links = ", ".join(f"{link.label} {share(link.share)}" for link in one.critical if link.share >= NOTABLE)
        sentences.append(f"Critical path of the median step: {links}.")
    if one.kinds:
        kinds = ", ".join(f"{kind.label} {share(kind.share)}" for kind in one.kinds if kind.share >= NOTABLE)
        cores = "" if one.tensor_cores is None else f"; known to use tensor cores: {share(one.tensor_cores)}"
        sentences.append(f"{'Operators' if one.tensor_cores is None else 'Kernels'} by kind: {kinds}{cores}.")
    if one.fact.overlap is not None:
        sentences.append(f"Communication hidden by computation: {share(one.fact.overlap)}.")
    if queue := one.fact.queue:
        sentences.append(
            f"Queue of the busiest stream: {digits(queue.mean)} items on average, {queue.most} at most, "
            f"empty for {share(queue.empty)} of the time."
        )
    if launches := one.fact.launches:
        sentences.append(
            f"Launches: {count(launches.calls, 'call')} of {seconds(launches.median)} (median) and "
            f"{seconds(launches.p99)} at the 99th percentile, {launches.slow} above 50 us. {share(launches.shorter)} "
            "took longer than the work they launched. "
            f"The work began {seconds(launches.delay)} after the call (median)."
        )
    return sentences


def between(report: Report) -> list[Phase]:
    """Return the measured work between the steps that takes any time."""
    return [phase for phase in report.between if phase.share]


def between_text(report: Report) -> str:
    """Return a sentence on the work between the steps that takes more than 1% of the run; empty without any."""
    parts = [
        f"{phase.label.lower()} {share(phase.share or 0.0)}"
        for phase in between(report)
        if (phase.share or 0.0) > NOTABLE
    ]
    return f"Between the steps, as shares of the run: {', '.join(parts)}." if parts else ""


def regions_text(report: Report) -> str:
    """Return a sentence on how long a pass through the longest regions takes; empty without regions."""
    regions = report.regions
    texts = [
        f"{region.name} {seconds(region.seconds / region.count)} x {region.count:,}"
        for region in regions[:MOST_REGIONS]
    ]
    rest = f" and {len(regions) - MOST_REGIONS} more" if len(regions) > MOST_REGIONS else ""
    return f"Named regions: {', '.join(texts)}{rest}." if texts else ""


def by_rank(report: Report) -> list[tuple[int, float, list[BarPart]]]:
    """Return the ranks, with the seconds and the parts of their mean steps; empty if there is only one, or many."""
    rows = report.ranks.rows
    if report.ranks.many or not 1 < len(rows) <= FEW or any(row.step_time is None for row in rows):
        return []
    steps = [(row.rank, sum(row.phases.values()), row.phases.items()) for row in rows]
    return [(rank, total, [_part(name, time / total) for name, time in parts if time]) for rank, total, parts in steps]


def ranks_text(report: Report) -> str:
    """Return a sentence on how far apart many ranks are; empty if there are few."""
    spread = dict(report.ranks.spread)
    if not spread:
        return ""
    return (
        f"Own work of a rank in its median step: {seconds(spread['median'])}, {seconds(spread['10%'])} to "
        f"{seconds(spread['90%'])} for 80% of the ranks, {seconds(spread['least'])} to {seconds(spread['most'])} "
        "for all."
    )


def named(one: OutlierRank) -> str:
    """Return a rank that stands out, on one line."""
    return f"rank {one.rank}: {'' if one.seconds is None else seconds(one.seconds) + ', '}{one.why}"


def problems(report: Report) -> list[Note]:
    """Return the notes of the recording that matter.

    Notes on the store come first, because its damage may affect every value, and short forms show only the first notes.
    Without steps, notes on steps are left out, because the report says so already.
    """
    trained = report.steps is not None and report.steps.count > 0
    notes = [note for note in report.problems if note.matters and (trained or note.source != "steps")]
    return sorted(notes, key=lambda note: note.source != "store")


def parts(report: Report) -> list[BarPart]:
    """Return the step's phases for a stacked bar."""
    return [_part(phase.name, phase.share or 0.0) for phase in phases(report)]


def bar_text(parts: Iterable[BarPart]) -> str:
    """Return a stacked bar as text, for readers who cannot see it."""
    return ", ".join(f"{part.label.lower()} {part.text}" for part in parts)


def memory_parts(report: Report) -> list[BarPart]:
    """Return the device's memory, for a stacked bar; the free part comes last."""
    parts = [BarPart(name, MEMORY[name], amount, size(amount)) for name, amount in report.memory.items() if amount > 0]
    free = (report.memory_total or 0.0) - sum(part.amount for part in parts)
    return [*parts, BarPart("free", "Free or cached", free, size(free))] if free > 0 else parts


def curves(report: Report) -> Iterable[tuple[str, list[str]]]:
    """Return the curves for readers who cannot see them: the lowest, median, highest and last value of each."""
    for chart in report.charts:
        for curve in chart.curves:
            values = [value for value in curve.values if value is not None]
            figures = (min(values), median(values), max(values), values[-1])
            yield f"{chart.title}: {curve.label}", [quantity(value, chart.unit) for value in figures]


def path(report: Report) -> list[Stop]:
    """Return the expected step time now and after each change of the plan that has one."""
    step_time = report.before
    if not step_time:
        return []
    stops = [Stop("Now, including its share of the time between steps" if report.extended else "Now", step_time)]
    for item in report.advice:
        if (gain := item.finding.in_plan) and item.severity != "info":
            step_time *= 1 - gain.expected
            stops.append(Stop(item.title, step_time, rule=item.rule))
    return stops


def only_information(report: Report) -> bool:
    """Return whether all advice is information."""
    return all(item.severity == "info" for item in report.advice)


def applied(report: Report) -> list[Stop]:
    """Return the step time before the changes that were applied in this run, and after each; empty without any."""
    measured_trials = [(trial, trial.seconds) for trial in report.applied if trial.seconds]
    if not measured_trials:
        return []
    first = Stop("Before", measured_trials[0][1][0])
    return [first, *(Stop(_title(report, trial.rule), times[1], outcome(trial)) for trial, times in measured_trials)]


def change_since(report: Report, step: float) -> str:
    """Return this run's median step relative to one of `step` seconds: "-20%"; empty if it is not known."""
    median_step = report.steps.p50 if report.steps else None
    return "" if median_step is None else f"{median_step / step - 1:+.0%}"


def fitted(report: Report) -> list[str]:
    """Return the changes without which the program ran out of memory; empty without any."""
    return [f"{_title(report, trial.rule)}: {outcome(trial)}" for trial in report.applied if trial.seconds is None]


def _title(report: Report, rule: str) -> str:
    """Return the title of a rule, or its id if the rule is gone."""
    return next((check.rule.title for check in report.checked if check.rule.id == rule), rule)


def effects(item: Recommendation) -> list[Tile]:
    """Return the other expected effects of a change; empty if the verdict of a trial is against it."""
    if item.tried_in_vain:
        return []
    tiles = []
    finding, advice = item.finding, item.finding.advice
    saving = finding.saving
    if saving is not None and saving.gpu_hours > 0:
        worth = f", worth {money(saving.money)}" if saving.money is not None else ""
        tiles.append(Tile("Saves", f"{digits(saving.gpu_hours)} of every {SAVING_OF:.0f} GPU-hours{worth}"))
    if finding.cost:
        tiles.append(Tile("Cost of training", gain_text(finding.cost, "").rstrip()))
    measured = item.verified is not None and item.verified.memory is not None
    for label, amount in (("GPU memory", None if measured else advice.memory), ("Host memory", advice.host_memory)):
        if amount:
            tiles.append(Tile(label, f"{'frees' if amount < 0 else 'takes'} about {size(abs(amount))} (estimated)"))
    return tiles


def differences(change: Change, arrow: str = "\u2192") -> str:
    """Return the new settings, such as "num_workers: 0 -> 5" with the given arrow.

    Empty if the current settings are not known.
    """
    return ", ".join(
        f"{difference.name}: {difference.before} {arrow} {difference.after}" for difference in change.differences
    )


def gain(item: Recommendation) -> str:
    """Return the gain of the change at its place in the plan."""
    return _in_plan(item.finding) if item.finding.in_plan else "no gain in step time predicted"


def gains(item: Recommendation) -> list[str]:
    """Return the predictions of step time and cost; empty if the verdict of a trial is against the change."""
    if item.tried_in_vain:
        return []
    finding = item.finding
    of_cost = [gain_text(finding.cost, "cost")] if finding.cost else []
    return [_in_plan(finding), *of_cost] if finding.in_plan else of_cost


def fact(fact: Measurement) -> str:
    """Return a measured fact with its limit, on one line."""
    limit = limit_text(fact)
    return f"{fact.metric.label}: {measured_text(fact)}" + (f" ({limit})" if limit else "")


def value(name: str, value: Scalar) -> str:
    """Return a fact of the environment."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return size(value) if name in BYTES else f"{value:,}"
    return str(value)


def _part(phase: str, of_step: float) -> BarPart:
    return BarPart(phase, LABELS[phase][0], of_step, share(of_step))


def _in_plan(item: Finding) -> str:
    """Return the gain of a change in the plan; the changes before it may have left no gain."""
    assert item.in_plan is not None, "the caller has asked"
    if not is_nothing(item.in_plan):
        return gain_text(item.in_plan)
    alone = item.alone is not None and not is_nothing(item.alone)
    return "no further gain in step time after the changes above" if alone else "no gain in step time"
