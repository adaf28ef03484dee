"""Lay out where GPU time goes as an icicle: phase, modules, operator, kernel, each below what it is a part of.

The page draws it as SVG, so it needs no script.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from advisor.report.operator_table import OperatorTable
from advisor.report.render.roofline_chart import COLORS, OTHER
from advisor.units import seconds, share

WIDTH, LEVEL = 720, 18
NARROWEST = 2.0
"""Width of a part from which it is drawn."""
LETTER = 6.2
DEEPEST = 12
"""Levels at most: of a deeper path the outermost."""
PLACE = "#8b9bb0"
"""Color of a phase or module; an operator has that of its kind."""


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
    """The rectangles of a chart, and the size of all of it in pixels."""

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
    """Return the chart; None if no operator is inside a module or a named range."""
    if table.seconds <= 0 or not any(_is_place(name) for row in table.rows for name in row.path):
        return None
    root = _Node()
    for row in table.rows:
        node, color = root, COLORS.get(row.kind, OTHER)
        for name in dict.fromkeys(filter(None, [row.phase, *row.path[:DEEPEST], row.name, row.kernel])):
            place = name == row.phase or (name in row.path and _is_place(name))
            node = node.inside.setdefault(name, _Node(PLACE if place else color))
            node.seconds += row.seconds
    parts = tuple(_parts(root, 0.0, 0, table.seconds))
    return Icicle(height=max((part.y for part in parts), default=0.0) + LEVEL, parts=parts)


def _is_place(name: str) -> bool:
    return "::" not in name and not name.endswith("Backward0")


def _parts(node: _Node, x: float, depth: int, whole: float) -> Iterable[Rectangle]:
    for name, each in sorted(node.inside.items(), key=lambda item: -item[1].seconds):
        width = WIDTH * each.seconds / whole
        if width >= NARROWEST:
            letters = int((width - 4) / LETTER)
            label = name if len(name) <= letters else f"{name[: letters - 1]}\u2026" if letters > 3 else ""
            title = f"{name}: {seconds(each.seconds)}, {share(each.seconds / whole)}"
            yield Rectangle(round(x, 1), depth * LEVEL, round(width, 1), each.color, label, title)
            yield from _parts(each, x, depth + 1, whole)
        x += width
