"""Render a report for a coding agent: a summary that fits into 2,000 tokens, and sections on request."""

import shlex
from collections.abc import Callable, Iterator

from advisor.report.pages import condition, wrong_when
from advisor.report.quantities import brief
from advisor.report.render import view
from advisor.report.render.fenced import fenced
from advisor.report.render.tried import outcome
from advisor.report.report import Recommendation, Report
from advisor.report.wording import busy, diagnosis, forecast, guidance, remarks
from advisor.units import seconds, share, size

LONGEST = 6000
"""Most bytes of a summary. A token has three or more bytes in such text, so a summary has at most 2,000 tokens."""
LONGEST_SECTION = 24_000
LONGEST_LINE = 600
RESERVE = 40
"""Bytes for the line that counts the omitted lines."""

MOST_ADVICE = 5
MOST_PROBLEMS = 3
MOST_ROWS = 40


def summary(report: Report) -> str:
    """Return what was found, what to do, and which sections hold more."""
    names = [name for name, section in SECTIONS.items() if next(section(report), None)]
    ends = [f"sections (--section NAME): {', '.join(names) or 'none'}"]
    return _within([*_summary(report)], LONGEST, ends)


def section(report: Report, name: str) -> str:
    """Return the section of that name."""
    return _within([*SECTIONS[name](report)] or ["Nothing in this section was measured."], LONGEST_SECTION)


def _within(lines: list[str], longest: int, ends: list[str] | None = None) -> str:
    """Return as many of the lines as fit, fenced, and how many were left out."""
    kept_lines = list[str]()
    room = longest - len(fenced(ends or ()).encode()) - RESERVE
    for line in lines:
        text = line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} [cut]"
        length = len(text.encode(errors="replace")) + 1
        if length > room:
            kept_lines.append(f"[{len(lines) - len(kept_lines)} more lines left out]")
            break
        kept_lines.append(text)
        room -= length
    return fenced([*kept_lines, *(ends or ())])


def _summary(report: Report) -> Iterator[str]:
    steps = report.steps
    yield f"run: {shlex.join(report.run.command)}"
    yield f"ended: {report.run.ended}, ranks: {report.run.ranks}, nodes: {report.run.nodes}"
    yield from filter(None, (busy(report), f"diagnosis: {diagnosis(report)}"))
    if steps and steps.mean is not None:
        low, high = (seconds(end) for end in steps.interval) if steps.interval else ("?", "?")
        yield f"step: mean {seconds(steps.mean)} (95 %: {low} to {high}), {steps.steady} steady of {steps.count}"
    if view.phases(report):
        phases = sorted(view.phases(report), key=lambda part: -(part.share or 0.0))
        yield f"phases: {', '.join(f'{phase.name} {share(phase.share or 0.0)}' for phase in phases)}"
    if view.places_text(report):
        yield f"hot lines: {'; '.join(view.places_text(report))}"
    yield from _next(report)
    for number, item in enumerate(report.advice[:MOST_ADVICE], start=1):
        yield f"advice {number}: {item.rule} [{item.severity}] {item.title}; {'; '.join(view.gains(item)) or 'no gain'}"
        if item.verified:
            yield f"  tried: {item.verified.verdict.value}. {outcome(item.verified)}"
    if len(report.advice) > MOST_ADVICE:
        yield f"  {len(report.advice) - MOST_ADVICE} more: section advice"
    yield from filter(None, (forecast(report), remarks(report)))
    for note in view.problems(report)[:MOST_PROBLEMS]:
        yield f"problem: {note.source}: {note.message}"


def _next(report: Report) -> Iterator[str]:
    step = report.next
    yield f"next: {step.do}{f' {step.rule}' if step.rule else ''}. {step.what or guidance(report)}"
    if step.command:
        yield f"  command: {shlex.join(step.command)}"
    if step.patch:
        yield f"  patch, for `git apply` in {step.folder}:"
        yield from (f"    {line}" for line in step.patch.splitlines())
    elif step.no_patch:
        yield f"  no patch: {step.no_patch}"


def _advice(report: Report) -> Iterator[str]:
    for item in report.advice:
        advice = item.finding.advice
        yield f"{item.rule} [{item.severity}] {item.title}"
        yield f"  if: {condition(item.finding.rule)}"
        yield f"  then: {advice.then}"
        yield f"  gain: {'; '.join(view.gains(item)) or 'none predicted'}. {advice.basis}"
        yield f"  risk: {advice.risk}"
        yield from (f"  {name}: {text}" for name, text in _aside(item) if text)
        for change in advice.changes:
            yield f"  change: {view.place(report, change)} {view.differences(change, '->')}".rstrip()
            yield from (f"    {line}" for line in change.code.splitlines())


def _aside(item: Recommendation) -> Iterator[tuple[str, str]]:
    yield "wrong when", wrong_when(item.finding.rule)
    yield "held back", item.finding.held_back
    yield "past", item.past
    if item.verified:
        yield "tried", f"{item.verified.verdict.value}. {outcome(item.verified)} {item.verified.why}"


def _evidence(report: Report) -> Iterator[str]:
    for item in report.advice:
        facts = item.finding.evidence.facts
        if facts or item.note:
            yield f"{item.rule}: {item.note}"
        yield from (f"  {view.fact(fact)} ({fact.metric.name}). {brief(fact.metric)}" for fact in facts)


def _operators(report: Report) -> Iterator[str]:
    table = report.operators
    if table is None:
        return
    yield f"per step, of {seconds(table.seconds)} of GPU work on {table.gpu or 'a GPU'}:"
    for row in table.rows[:MOST_ROWS]:
        roof = "" if row.roof.share is None else f", {share(row.roof.share)} of the roofline ({row.roof.bound})"
        gain = f", {seconds(row.roof.gain)} recoverable" if row.roof.gain else ""
        where = f" in {'.'.join(row.path)}" if row.path else ""
        yield f"  {share(row.share)} {seconds(row.seconds)} {row.name}{where}, {row.calls:.3g} calls{roof}{gain}"


def _hot_lines(report: Report) -> Iterator[str]:
    code = report.code
    if code is None:
        return
    for title, places in (
        ("a step", code.places),
        ("making batches", code.workers),
        ("the run, between steps", code.between),
    ):
        for place in places[:MOST_ROWS]:
            span = f"{share(place.low)} to {share(place.high)}"
            where = f"{place.name} in {view.place(report, place)}"
            yield f"{share(place.share)} of {title} ({span}): {where}, {place.phase}"
    for heat in code.heated:
        remark = " (changed since)" if heat.changed else ""
        yield f"source of {heat.place.name} in {view.place(report, heat.place)}{remark}:"
        yield from (
            f"  {line.number:5} {share(line.share) if line.share else '':>6} {line.text}" for line in heat.lines
        )


def _metrics(report: Report) -> Iterator[str]:
    measured = [quantity for quantity in report.quantities if quantity.value is not None]
    yield from (f"{quantity.name} = {quantity.text}" for quantity in measured)
    if missing_names := [quantity.name for quantity in report.quantities if quantity.value is None]:
        yield f"not measured: {', '.join(missing_names)}"


def _ranks(report: Report) -> Iterator[str]:
    for row in report.ranks.rows:
        label = f"rank {row.rank} on {row.host or f'node {row.node}'}"
        phases = ", ".join(f"{name} {seconds(duration)}" for name, duration in row.phases.items())
        time = "not measured" if row.step_time is None else seconds(row.step_time)
        peak = "" if row.memory_peak is None else f", memory peak {size(row.memory_peak)}"
        yield f"{label}: step {time}{peak}. {phases}. {row.remark}".rstrip(" .")


SECTIONS: dict[str, Callable[[Report], Iterator[str]]] = {
    "advice": _advice,
    "evidence": _evidence,
    "operators": _operators,
    "hot-lines": _hot_lines,
    "metrics": _metrics,
    "ranks": _ranks,
}
"""Sections by name."""
