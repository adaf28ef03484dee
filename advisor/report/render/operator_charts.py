"""Lay out the charts of operators: the roofline, and where GPU time goes.

The page draws them as SVG, so they need no script.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from advisor.models.roofline import TENSOR_KINDS, peak_rate
from advisor.report.operator_table import OperatorRow, OperatorTable
from advisor.units import seconds, share

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 42
SMALLEST_SHARE = 1e-3
"""Share of the time from which an operator is drawn."""
SMALLEST, LARGEST = 3.0, 20.0
"""Smallest radius of a point, and the radius at a share of 1; it grows with the square root of the share."""
COLORS = {
    "matmul": "#3b82c4",
    "attention": "#b565a7",
    "convolution": "#2a9d78",
    "normalization": "#c9a227",
    "reduction": "#c8553d",
    "optimizer": "#56a8d6",
    "elementwise": "#d9822b",
}
"""Distinct to the color-blind (after Okabe and Ito); other kinds are gray."""
OTHER = "#7a869a"

LEVEL = 18
"""Height of a level of the icicle, in pixels."""
NARROWEST = 2.0
"""Width from which a part is drawn, in pixels."""
LETTER = 6.2
DEEPEST = 12
"""Most levels of a path that are drawn, the outermost ones."""
PLACE = "#8b9bb0"
"""Color of a phase or module; an operator has the color of its kind."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis: maps a value to its place in pixels."""

    low: float
    high: float
    begin: int
    end: int

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.begin + part * (self.end - self.begin), 1)

    @property
    def powers(self) -> list[float]:
        """Return the powers of ten, where the ticks are."""
        first, last = (round(math.log10(bound)) for bound in (self.low, self.high))
        return [10.0**power for power in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class RooflineChart:
    """Operators by operations per byte and rate, below the peak rates of their dtypes."""

    rows: list[OperatorRow]
    peaks: dict[str, float]
    bandwidth: float
    x: Axis
    y: Axis
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    bottom: int = HEIGHT - BOTTOM

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of the operators."""
        return list(dict.fromkeys(row.kind for row in self.rows))

    def point(self, row: OperatorRow) -> tuple[float, float, float]:
        """Return the place of an operator and its radius."""
        radius = round(max(SMALLEST, LARGEST * math.sqrt(row.share)), 1)
        return self.x(_intensity(row)), self.y(row.roof.rate or 1.0), radius

    def roof(self, peak: float) -> str:
        """Return the line that operators cannot exceed: bandwidth times intensity up to the peak, then level."""
        begin = max(self.x.low, self.y.low / self.bandwidth)
        ridge = max(begin, peak / self.bandwidth)
        corners = ((begin, min(peak, begin * self.bandwidth)), (ridge, peak), (self.x.high, peak))
        return " ".join(f"{self.x(intensity)},{self.y(rate)}" for intensity, rate in corners)


def roofline(table: OperatorTable) -> RooflineChart | None:
    """Return operators by operations per byte and rate, below what the GPU can do.

    None if fewer than two operators have operations and bytes, or if the peaks are unknown.
    """
    modeled_rows = (row for row in table.rows if row.share >= SMALLEST_SHARE and row.roof.share is not None)
    rows = [row for row in modeled_rows if row.roof.rate and row.roof.bandwidth]
    if len(rows) < 2 or table.peaks is None or not table.peaks.bandwidth:
        return None
    peaks = {
        dtype: rate
        for dtype in sorted({row.arithmetic or "" for row in rows if row.kind in TENSOR_KINDS} | {"fp32"})
        if (rate := peak_rate(table.peaks, dtype))
    }
    bandwidth, highest = table.peaks.bandwidth, max(peaks.values())
    x = Axis(*_ends([*map(_intensity, rows), highest / bandwidth]), LEFT, WIDTH - RIGHT)
    y = Axis(*_ends([*(row.roof.rate or 1.0 for row in rows), highest]), HEIGHT - BOTTOM, TOP)
    return RooflineChart(rows, peaks, bandwidth, x, y)


def color(kind: str) -> str:
    """Return the color of a kind of operators."""
    return COLORS.get(kind, OTHER)


def _ends(values: list[float]) -> tuple[float, float]:
    """Return the powers of ten around the values."""
    return 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values) * 1.01))


def _intensity(row: OperatorRow) -> float:
    return (row.roof.rate or 1.0) / (row.roof.bandwidth or 1.0)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle of the chart."""

    x: float
    y: float
    width: float
    color: str
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Icicle:
    """The rectangles of a chart, and its size in pixels."""

    height: float
    parts: tuple[Rectangle, ...]
    width: int = WIDTH
    level: int = LEVEL


@dataclass(slots=True)
class _Node:
    color: str = PLACE
    seconds: float = 0.0
    inside: dict[str, _Node] = field(default_factory=dict)


def icicle(table: OperatorTable) -> Icicle | None:
    """Return the icicle of phases, modules, operators and kernels, each below the one that contains it.

    None if no operator is inside a module or a named range.
    """
    if table.seconds <= 0 or not any(_is_place(name) for row in table.rows for name in row.path):
        return None
    root = _Node()
    for row in table.rows:
        node, kind_color = root, color(row.kind)
        for name in dict.fromkeys(filter(None, [row.phase, *row.path[:DEEPEST], row.name, row.kernel])):
            is_place = name == row.phase or (name in row.path and _is_place(name))
            node = node.inside.setdefault(name, _Node(PLACE if is_place else kind_color))
            node.seconds += row.seconds
    parts = tuple(_parts(root, 0.0, 0, table.seconds))
    return Icicle(height=max((part.y for part in parts), default=0.0) + LEVEL, parts=parts)


def _is_place(name: str) -> bool:
    return "::" not in name and not name.endswith("Backward0")


def _parts(node: _Node, x: float, depth: int, whole: float) -> Iterable[Rectangle]:
    for name, child in sorted(node.inside.items(), key=lambda item: -item[1].seconds):
        width = WIDTH * child.seconds / whole
        if width >= NARROWEST:
            letters = int((width - 4) / LETTER)
            label = name if len(name) <= letters else f"{name[: letters - 1]}\u2026" if letters > 3 else ""
            title = f"{name}: {seconds(child.seconds)}, {share(child.seconds / whole)}"
            yield Rectangle(round(x, 1), depth * LEVEL, round(width, 1), child.color, label, title)
            yield from _parts(child, x, depth + 1, whole)
        x += width
