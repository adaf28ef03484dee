"""Put the operator table into words, for the page and the Markdown."""

from collections.abc import Callable

from advisor.report.operator_table import OperatorRow, OperatorTable
from advisor.units import digits, seconds, share

NAMED = 5
"""Most operators named above the table."""
NOTABLE = 0.02
"""Share of a step from which a gain is worth a line."""
KERNEL_LENGTH = 70
"""Most characters of a kernel's name; the full one is in the table of kernels."""
INNERMOST = 3
"""Most names of a path that are shown."""

Cell = tuple[str, float | None]
"""A text, and the number to sort it by."""


COLUMNS = ("Time", "Share", "Calls", "TFLOP/s", "GB/s", "Roofline", "Bound", "Recoverable", "Host", "Launch gap")


def span(table: OperatorTable, *, imported: bool) -> str:
    """Return what the table is about."""
    period = "of the trace" if imported and not table.marked else "a step"
    gpu = f" on {table.gpu}" if table.gpu else ""
    return (
        f"Operators that launched the {seconds(table.seconds)} of work {period}{gpu}: the innermost operator "
        "around each launch, with its place in the model and the shapes of its inputs."
    )


def lines(table: OperatorTable) -> list[str]:
    """Return the sentences about the operators that matter most."""
    sentences = [f"Most time: {', '.join(f'`{row.name}` {share(row.share)}' for row in table.rows[:3])}."]
    gains = [row for row in table.gains if row.roof.gain and row.roof.gain >= NOTABLE * table.elapsed]
    for row in gains[:NAMED]:
        shape = f" of {shapes(row.inputs)}" if any(row.inputs) else ""
        place = f" in {module_name}" if (module_name := module(row.path)) else ""
        sentences.append(
            f"`{row.name}`{shape}{place}: {share(row.roof.share or 0.0)} of its roofline, bound by {row.roof.bound}; "
            f"{seconds(row.roof.gain or 0.0)} less at the speed that its kind typically reaches."
        )
    if table.peaks is None and table.gpu:
        sentences.append(f"The peak rates of {table.gpu} are unknown, so there is no roofline.")
    elif not any(row.inputs for row in table.rows):
        sentences.append("The trace lacks input shapes (`record_shapes=True`), so operations and bytes are unknown.")
    return sentences


def rows(table: OperatorTable) -> list[OperatorRow]:
    """Return the rows, most time first, and the rest."""
    return [*table.rows, *([table.rest] if table.rest else [])]


def filters(table: OperatorTable) -> list[tuple[str, list[str]]]:
    """Return what rows can be filtered by, and the values."""
    values: dict[str, set[str]] = {
        "Kind": {row.kind for row in rows(table)},
        "Phase": {row.phase or "" for row in rows(table)},
        "Bound": {row.roof.bound or "" for row in rows(table)},
    }
    return [(name, sorted(choices - {""})) for name, choices in values.items() if len(choices) > 1]


def note(table: OperatorTable) -> str:
    """Return what the columns mean."""
    text = "Launch gap: time in which the GPU was idle because the launch came late. "
    if table.modeled:
        text += (
            "Roofline: the least possible time (operations at the peak rate of their dtype, or bytes at peak "
            "bandwidth) divided by the measured time; above 100% if data came from a cache. Recoverable: the "
            "time saved at the speed that good kernels of this kind typically reach. "
        )
    return f"{text}A cell is empty if the trace does not contain the value."


def place(row: OperatorRow) -> str:
    """Return the innermost names of an operator's path."""
    return " / ".join(("...", *row.path[-INNERMOST:]) if len(row.path) > INNERMOST else row.path)


def about(row: OperatorRow) -> str:
    """Return the phase, the kind, the shapes, the dtype and the kernels of an operator."""
    parts = [row.phase or "", row.kind, shapes(row.inputs), row.dtype or ""]
    if row.kernel and row.kernel != row.name:
        several = row.kernels is not None and row.kernels > row.calls
        kernels = f"{digits(row.kernels / row.calls)} kernels, most " if several and row.kernels else ""
        parts.append(f"{kernels}{shortened(row.kernel)}")
    return ", ".join(filter(None, parts))


def cells(row: OperatorRow) -> tuple[Cell, ...]:
    """Return the cells below `COLUMNS`."""
    roof = row.roof
    return (
        (seconds(row.seconds), row.seconds),
        (share(row.share), row.share),
        (digits(row.calls), row.calls),
        _cell(None if roof.rate is None else roof.rate * 1e-12, digits),
        _cell(None if roof.bandwidth is None else roof.bandwidth * 1e-9, digits),
        _cell(roof.share, share),
        (roof.bound or "", None if roof.bound is None else float("clm".index(roof.bound[0]))),
        _cell(roof.gain, seconds),
        _cell(row.host, seconds),
        _cell(row.gap, seconds),
    )


def _cell(value: float | None, worded: Callable[[float], str]) -> Cell:
    return ("", None) if value is None else (worded(value), value)


def shapes(inputs: tuple[tuple[int, ...], ...]) -> str:
    """Return the shapes of the tensors, such as "141x512, 512x2048"."""
    return ", ".join("x".join(map(str, shape)) for shape in inputs if shape)


def module(path: tuple[str, ...]) -> str:
    """Return the innermost range of a path that is not an operator; empty if there is none."""
    return next((name for name in reversed(path) if "::" not in name), "")


def shortened(name: str) -> str:
    """Return a kernel's name, cut off where it is too long for a line."""
    return name if len(name) <= KERNEL_LENGTH else f"{name[: KERNEL_LENGTH - 3]}..."
