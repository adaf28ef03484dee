"""Define the parts of a plan's or a comparison's page: sentences, tables of text, bars, settings.

All forms but JSON show the same.
"""

from dataclasses import dataclass

from advisor.plan.settings import Setting


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the first column names a row, and the others usually hold numbers, aligned to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chosen: int | None = None
    """Index of the recommended row."""
    note: str = ""
    marks: tuple[str, ...] = ()
    """The mark of each row: "better", "worse" or empty; () marks none."""
    words: bool = False
    """Whether the other columns hold words instead of numbers."""


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a stacked bar."""

    name: str
    label: str
    amount: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A stacked bar of what fills a GPU or a step. `width` is its share of the longest bar."""

    label: str
    parts: tuple[BarPart, ...]
    total: float
    width: float


@dataclass(frozen=True, slots=True)
class Section:
    """One question and its answer."""

    id: str
    title: str
    headline: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    tiles: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """The frame around the sections."""

    brand: str
    """The command that makes such pages."""
    title: str
    """Title of the page in the browser."""
    about: str
    """How far the page can be trusted."""
    command: str
    """The command that made this page."""
