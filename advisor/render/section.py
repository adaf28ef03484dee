"""What a page of the plan, or of a comparison, is made of: sentences, tables of text, bars, settings.

All forms but JSON show the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.plan.settings import Setting
from advisor.render.part import Part


@dataclass(frozen=True, slots=True)
class Table:
    """The first column names a row; the others are numbers, as a rule, to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chosen: int | None = None
    """The row of the recommendation."""
    note: str = ""
    marks: tuple[str, ...] = ()
    """Of each row: "better", "worse" or nothing; () marks none."""
    words: bool = False
    """The other columns hold words, not numbers."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What fills a GPU, or a step. `width` is its share of the longest bar."""

    label: str
    parts: tuple[Part, ...]
    total: float
    width: float


@dataclass(frozen=True, slots=True)
class Section:
    """One question and its answer."""

    id: str
    title: str
    headline: str
    sentences: tuple[str, ...]
    tables: tuple[Table, ...]
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    tiles: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """What stands around the sections."""

    brand: str
    """The command that makes such pages."""
    title: str
    """What it is, in the browser's list."""
    about: str
    """How far it is to be trusted."""
    command: str
    """What made this one."""
