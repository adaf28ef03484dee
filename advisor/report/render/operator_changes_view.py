"""Present what changed in the GPU's work between two sides, as a section of a comparison."""

from collections.abc import Iterable

from advisor.compare.operators import LEAST, OperatorChange, OperatorChanges, OperatorSide
from advisor.report.render.operators_view import KERNEL_LENGTH, module, shapes, shortened
from advisor.report.render.section import Section, Table
from advisor.units import digits, seconds, share

MARKED = 0.05
"""Share of the operator's own time from which a difference is marked as better or worse."""


def section(found: OperatorChanges) -> Section:
    """Return the section on operators and kernels that differ between two runs."""
    tables = (
        Table(
            "Operators, largest difference first",
            ("", "A", "B", "Difference", "Of A's GPU time"),
            (*(_row(change, found) for change in found.rows), *_others(found)),
            note=_note(found),
            marks=(*(_mark(change) for change in found.rows), *("" for _ in _others(found))),
        ),
        Table(
            "Kernels exchanged",
            ("", "A", "B"),
            tuple(
                (_place(change), _work(change.before, change.after), _work(change.after, change.before))
                for change in found.rows
                if change.exchanged
            ),
            words=True,
        ),
    )
    return Section(
        id="gpu-work",
        title="GPU work",
        headline=headline(found),
        sentences=tuple(_sentences(found)),
        tables=tuple(table for table in tables if table.rows),
    )


def headline(found: OperatorChanges) -> str:
    """Return in one sentence by how much the GPU's work changed."""
    period = "a step" if found.marked else "in all"
    change = found.after / found.before - 1
    amount = "no difference" if abs(change) < LEAST else f"{share(abs(change))} {'more' if change > 0 else 'less'}"
    return f"GPU work takes {seconds(found.after)} {period} in B, {seconds(found.before)} in A: {amount}."


def _sentences(found: OperatorChanges) -> Iterable[str]:
    changes = [f"`{_name(change)}` {_signed(change.difference)}" for change in found.rows[:3] if change.difference]
    if changes:
        yield f"Most of it: {', '.join(changes)}."
    if found.gpus[0] != found.gpus[1]:
        yield f"They ran on different GPUs: {found.gpus[0] or 'not known'} in A, {found.gpus[1] or 'not known'} in B."


def _row(each: OperatorChange, found: OperatorChanges) -> tuple[str, ...]:
    return (
        _place(each),
        _time(each.before, found.least[0]),
        _time(each.after, found.least[1]),
        _signed(each.difference),
        f"{100 * each.difference / found.before:+.1f}%",
    )


def _others(found: OperatorChanges) -> tuple[tuple[str, ...], ...]:
    if abs(found.others) < LEAST * found.before:
        return ()
    return (("All others", "", "", _signed(found.others), f"{100 * found.others / found.before:+.1f}%"),)


def _time(side: OperatorSide | None, least: float | None) -> str:
    if side is None:
        return "none" if least is None else f"none, or below {seconds(least)}"
    return seconds(side.seconds)


def _mark(each: OperatorChange) -> str:
    longest = max(side.seconds for side in (each.before, each.after) if side)
    return "" if abs(each.difference) < MARKED * longest else "worse" if each.difference > 0 else "better"


def _name(each: OperatorChange) -> str:
    side = each.after or each.before
    return ", ".join(map(shortened, side.names[:2])) if side else ""


def _place(each: OperatorChange) -> str:
    side = each.after or each.before
    details = [part for part in (shapes(side.inputs) if side else "", each.phase or "", module(each.path)) if part]
    return f"{_name(each)} ({'; '.join(details)})" if details else _name(each)


def _work(side: OperatorSide | None, other: OperatorSide | None) -> str:
    """Return the side's operators, unless both sides have the same, with the kernel, the calls and the time."""
    if side is None:
        return ""
    names = "" if other and side.names == other.names else ", ".join(side.names)
    kernel = "" if side.kernel in side.names else side.kernel.removeprefix("void ")
    description = ": ".join(part[: 2 * KERNEL_LENGTH] for part in (names, kernel) if part)
    return f"{description}, {digits(side.calls)} x, {seconds(side.seconds)}"


def _signed(value: float) -> str:
    return "0" if not value else f"{'+' if value > 0 else '-'}{seconds(abs(value))}"


def _note(found: OperatorChanges) -> str:
    caveat = "Based on one window per side, without an interval: small differences may be chance. "
    return (
        f"{caveat}Operators are matched by phase, place, name and shapes; if that fails, by fewer of these. "
        f"Operators below {share(LEAST)} of A's GPU time are summed up."
    )
