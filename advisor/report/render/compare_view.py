"""Present a comparison of two runs to readers: the verdict in a sentence, then tables."""

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from advisor.compare.change import ChangeVerdict
from advisor.compare.comparison import LEAST_STEPS, ComparedQuantity, Comparison, Side
from advisor.compare.lines import FunctionChange
from advisor.compare.settings import Difference
from advisor.report.render import view
from advisor.report.render.operator_changes_view import section as operator_section
from advisor.report.render.section import Bar, BarPart, Section, Table
from advisor.report.render.view import ENDINGS
from advisor.report.report import LABELS
from advisor.runs.environment import Scalar
from advisor.stats.significance import Interval
from advisor.units import count, digits, quantity, seconds, share, span

UNMEASURED = "not measured"

BRIEF = 8
"""Rows of a table in a summary."""

COLUMNS = ("", "A", "B", "Change", "Verdict")

_WORDS = {
    ChangeVerdict.WORSE: "Slower",
    ChangeVerdict.BETTER: "Faster",
    ChangeVerdict.SAME: "The same speed",
    ChangeVerdict.UNCLEAR: "Too noisy to tell",
}


_STEPS = {
    "step_time_mean": "a mean step",
    "typical_step_time": "a typical step",
    "whole_step_time": "a step, including evaluation and saving,",
}


def sections(found: Comparison) -> tuple[Section, ...]:
    """Return the sections worth showing."""
    operator_sections = [operator_section(found.operators)] if found.operators else []
    page_sections = (
        [_time(found), *operator_sections] if found.verdict.is_decided else [*operator_sections, _time(found)]
    )
    for id_, title, table in (
        ("code", "Where in the code", _functions(found)),
        ("memory", "Memory", _rows("Peaks", found.memory)),
        ("machine", "The machine", _shown("Means over the steady steps", found.machine)),
        ("settings", "Settings that differ", _facts(found.settings)),
        ("environment", "Environment that differs", _facts(found.environment)),
    ):
        if table.rows:
            page_sections.append(Section(id=id_, title=title, headline=title, tables=(table,)))
        elif id_ in ("settings", "environment") and found.before.command and found.after.command:
            sentence = f"{title.partition(' that ')[0]}: no difference was seen."
            page_sections.append(Section(id=id_, title=title, headline=sentence))
    return (*page_sections[:-1], replace(page_sections[-1], notes=_NOTES))


def brief(found: Comparison) -> tuple[Section, ...]:
    """Return what a summary has room for: the verdict, and the operators that changed most."""
    operator_sections = [operator_section(found.operators)] if found.operators else []
    time_section = replace(_time(found), tables=())
    return (
        time_section,
        *(replace(section, tables=tuple(map(_shortened, section.tables[:1]))) for section in operator_sections),
    )


def _shortened(table: Table) -> Table:
    return replace(table, rows=table.rows[:BRIEF], marks=table.marks[:BRIEF], note="")


def headline(found: Comparison) -> str:
    """Return the verdict in one sentence."""
    row = _speaks(found)
    if found.verdict is ChangeVerdict.TOO_FEW:
        counts = f"A has {found.before.steps} steady steps, B has {found.after.steps}"
        return f"Too few steps to tell: {counts}; each needs {LEAST_STEPS}."
    if row.before is None or row.after is None:
        sides = " and ".join(name for name, value in (("A", row.before), ("B", row.after)) if value is None)
        return f"No verdict: no steady training step was measured in {sides}."
    word = _WORDS[found.verdict]
    if found.verdict is ChangeVerdict.UNCLEAR and found.crowded:
        word = "Unclear, because other programs used the cores"
    phrase = _STEPS[row.name]
    return f"{word}: {phrase} takes {seconds(row.after)} in B, {seconds(row.before)} in A: {_amount(row)}."


def _speaks(found: Comparison) -> ComparedQuantity:
    """Return the row that the verdict is based on: the mean step, unless the verdict differs from it."""
    first = found.mean if found.mean.verdict is found.whole.verdict else found.whole
    return next((row for row in (first, found.mean, found.typical) if row.verdict is found.verdict), first)


def _amount(row: ComparedQuantity) -> str:
    """Return a change as "12% more (8.5 to 15%)"."""
    assert row.change
    direction = 1 if row.change.estimate >= 0 else -1
    low, high = sorted(direction * bound for bound in (row.change.low, row.change.high))
    more, less = ("more", "less") if direction > 0 else ("less", "more")
    size = share(abs(row.change.estimate))
    difference = "no difference" if size == "0%" else f"{size} {more}"
    interval = size
    if math.isfinite(low) and math.isfinite(high):
        interval = span(low, high) if low >= 0 else f"from {share(-low)} {less} to {share(high)} {more}"
    return difference if interval == size else f"{difference} ({interval})"


def _time(found: Comparison) -> Section:
    tables = [
        _rows("Step time", found.steps, note=_NOTE.format(share(found.relevant))),
        _rows("Where a step goes: change as a share of A's step", found.phases),
        _rows("Between the steps, per step", found.between),
    ]
    return Section(
        id="time",
        title="Time",
        headline=headline(found),
        sentences=tuple(_sentences(found)),
        tables=tuple(table for table in tables if table.rows),
        bars=_bars(found),
        tiles=tuple(_tiles(found)),
    )


_NOTE = (
    "In brackets: the 95% interval. Better or worse: the interval excludes zero and the difference is {0} or more. "
    "The same: the interval contains no such difference."
)

_NOTES = (
    "Intervals cover the variation of steps within these two runs, not the variation between runs on one machine. "
    "Repeat both runs before you trust a small difference.",
    "A memory peak is a single number without an interval, so only the size of the difference counts.",
)


def _sentences(found: Comparison) -> Iterable[str]:
    for name, side in (("A", found.before), ("B", found.after)):
        yield f"{name}: {_side(side)}"
    if found.verdict.is_decided and found.mean.verdict is ChangeVerdict.UNCLEAR and found.mean.change:
        yield f"Because of single stalls, the mean is unclear: {_amount(found.mean)}."
    is_agreed = found.verdict.is_decided and found.mean.verdict is found.verdict
    if is_agreed and found.whole.verdict is ChangeVerdict.UNCLEAR:
        yield f"Events between steps are too rare for a verdict; with them, a step takes {_amount(found.whole)}."
    if found.crowded:
        yield (
            f"Other programs used the cores during {' and '.join(found.crowded)}: intervals include what that may have "
            "cost. Record again on an idle machine."
        )
    if found.scale != 1.0:
        yield (
            f"A step trains on {digits(found.before.samples or 0)} samples in A and "
            f"{digits(found.after.samples or 0)} in B: times of B are scaled to the number of samples in A."
        )
    if found.before.ranks != found.after.ranks and found.before.ranks and found.after.ranks:
        remark = "" if found.before.samples and found.after.samples else ": times are per rank"
        yield f"A trains on {found.before.ranks} ranks, B on {found.after.ranks}{remark}."
    if names := ", ".join(dict.fromkeys(_fact_name(difference) for difference in found.hardware)):
        yield f"They ran on different machines ({names}): the machine may be the cause of a difference."
    for name, attribute in (("A", "before"), ("B", "after")):
        rows = [row for row in found.phases if row.is_measured and getattr(row, attribute) is None]
        if rows and found.mean.change:
            names = ", ".join(LABELS[row.name][0].lower() for row in rows)
            yield f"Not measured in {name}, so included in its other phases: {names}."


def _side(side: Side) -> str:
    ending = "" if side.ended in ("completed", "attached") else f", {ENDINGS[side.ended]}"
    command = f" ({shlex.join(side.command)})" if side.command else ""
    return f"{side.folder}{command}, {count(side.steps, 'steady step')}{ending}."


def _tiles(found: Comparison) -> Iterable[tuple[str, str]]:
    for name, value in (("A", found.mean.before), ("B", found.mean.after)):
        if value is not None:
            yield f"Mean step of {name}", seconds(value)
    row = _speaks(found)
    if row.change and found.verdict is not ChangeVerdict.TOO_FEW:
        yield "Change", _signed(row.change.estimate)
    yield "Verdict", found.verdict.value


def _bars(found: Comparison) -> tuple[Bar, ...]:
    """Return the bars of both steps, on one scale."""
    sides = [
        ("A", found.mean.before, [(row, row.before) for row in found.phases]),
        ("B", found.mean.after, [(row, row.after) for row in found.phases]),
    ]
    longest = max((mean or 0.0 for _, mean, _ in sides), default=0.0)
    return tuple(
        Bar(
            label=f"{name}: {seconds(mean)}",
            parts=tuple(BarPart(row.name, LABELS[row.name][0], value, seconds(value)) for row, value in parts if value),
            total=mean,
            width=mean / longest,
        )
        for name, mean, parts in sides
        if mean and any(value for _, value in parts)
    )


def _rows(title: str, rows: Sequence[ComparedQuantity], note: str = "") -> Table:
    measured_rows = [row for row in rows if row.is_measured]
    return Table(
        title,
        COLUMNS,
        tuple(
            (_label(row), _value(row, row.before), _value(row, row.after), _change(row.change), _verdict(row))
            for row in measured_rows
        ),
        note=note,
        marks=tuple(map(_mark, measured_rows)),
    )


def _shown(title: str, rows: Sequence[ComparedQuantity]) -> Table:
    return Table(
        title,
        COLUMNS[:3],
        tuple((_label(row), _value(row, row.before), _value(row, row.after)) for row in rows if row.is_measured),
    )


def _functions(found: Comparison) -> Table:
    return Table(
        "Functions of the program, including library calls: largest difference first",
        COLUMNS,
        tuple(
            (
                _function(row),
                seconds(row.before.seconds) if row.before else "not seen",
                seconds(row.after.seconds) if row.after else "not seen",
                _change(row.change),
                _verdict(row),
            )
            for row in found.functions
        ),
        note="From sampled stacks, as shares of the mean step. Changes are shares of A's step.",
        marks=tuple(map(_mark, found.functions)),
    )


def _function(row: FunctionChange) -> str:
    side = row.after or row.before
    assert side
    name = f"{row.function}()" if row.function.isidentifier() else row.function
    phase = LABELS[row.phase][0].lower() if row.phase in LABELS else row.phase.replace("_", " ")
    return f"{name} in {PurePath(side.file).name}:{side.line} ({phase})"


def _facts(differences: Sequence[Difference]) -> Table:
    return Table(
        "",
        ("", "A", "B"),
        tuple(
            (
                _fact_name(difference),
                _fact(difference.name, difference.before),
                _fact(difference.name, difference.after),
            )
            for difference in differences
        ),
        words=True,
    )


def _fact_name(one: Difference) -> str:
    return one.group if one.name == "seen" else f"{one.group}: {one.name}"


def _fact(name: str, value: Scalar) -> str:
    if value is None:
        return "not known"
    return "seen" if name == "seen" else view.value(name, value)


_CORES = ("process_cpu", "worker_cpu", "others_cpu")


def _label(row: ComparedQuantity) -> str:
    label = row.label.removesuffix(" of the step time").removesuffix(" step time")
    return LABELS[row.name][0] if row.name in LABELS else f"{label[:1].upper()}{label[1:]}"


def _value(row: ComparedQuantity, value: float | None) -> str:
    if value is None:
        return UNMEASURED
    return digits(value) if row.name in _CORES else quantity(value, row.unit)


def _change(change: Interval | None) -> str:
    """Return a change as "+12% [8.5%, 15%]"."""
    if change is None or not math.isfinite(change.estimate):
        return ""
    estimate = _signed(change.estimate)
    if change.low == change.high or not math.isfinite(change.low) or not math.isfinite(change.high):
        return estimate
    return f"{estimate} [{_signed(change.low)}, {_signed(change.high)}]"


def _signed(value: float) -> str:
    text = f"{100 * value:+.{0 if abs(value) >= 0.0995 else 1}f}%"
    return "0%" if text[1:] == "0.0%" else text


def _verdict(row: ComparedQuantity | FunctionChange) -> str:
    return "" if row.verdict in (None, ChangeVerdict.NOT_MEASURED) else row.verdict.value


def _mark(row: ComparedQuantity | FunctionChange) -> str:
    return row.verdict.value if row.verdict in (ChangeVerdict.BETTER, ChangeVerdict.WORSE) else ""
