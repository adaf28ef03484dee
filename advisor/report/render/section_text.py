"""Render sections in the terminal."""

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from advisor.plan.settings import Setting
from advisor.report.render.section import Section, Table
from profiler.printable import printable

LONG = 36
"""Characters of a row's name above which names are wrapped, and numbers are not."""

_MARKS = {"better": "green", "worse": "red"}


def show(sections: Sequence[Section], console: Console) -> None:
    """Print the sections. External text is text, never markup."""
    for section in sections:
        console.print()
        console.print(_section(section, ascii_only=console.options.ascii_only))
    console.print()


def written(sections: Sequence[Section]) -> str:
    """Return the same text, for a file or a message."""
    file = io.StringIO()
    show(sections, Console(file=file, width=100, highlight=False))
    return file.getvalue()


def _section(section: Section, *, ascii_only: bool) -> RenderableType:
    parts: list[RenderableType] = [_text(section.headline, "bold")]
    parts += [_text(sentence) for sentence in section.sentences]
    for table in section.tables:
        parts += [Text(), *([_text(table.title, "bold")] if table.title else []), _table(table, ascii_only=ascii_only)]
        if table.note:
            parts.append(Padding(_text(table.note, "dim"), (0, 0, 0, 2)))
    for setting in section.settings:
        parts += [Text(), _setting(setting)]
    if section.notes:
        parts.append(Text())
    parts += [_text(f"- {note}", "dim") for note in section.notes]
    return Group(*parts)


def _table(table: Table, *, ascii_only: bool) -> RenderableType:
    grid = Grid(
        box=box.ASCII2 if ascii_only else box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    long = any(len(row[0]) > LONG for row in table.rows)
    grid.add_column("  " + table.columns[0], no_wrap=not long, overflow="fold" if long else "ellipsis")
    for column in table.columns[1:]:
        no_wrap = long and not table.words
        grid.add_column(column, justify="left" if table.words else "right", overflow="fold", no_wrap=no_wrap)
    for number, row in enumerate(table.rows):
        chosen = number == table.chosen
        style = "bold green" if chosen else _MARKS.get(table.marks[number]) if table.marks else None
        cells = (Text(printable(cell)) for cell in (("> " if chosen else "  ") + row[0], *row[1:]))
        grid.add_row(*cells, style=style)
    return grid


def _setting(setting: Setting) -> RenderableType:
    parts: list[RenderableType] = [_text(f"{setting.tool}:", "bold")]
    if setting.code is not None:
        parts.append(Padding(Text(printable(setting.code.rstrip(), lines=True), style="cyan"), (0, 0, 0, 2)))
    if setting.note:
        parts.append(Padding(_text(setting.note), (0, 0, 0, 2)))
    return Group(*parts)


def _text(value: str, style: str = "") -> Text:
    return Text(printable(value), style=style)
