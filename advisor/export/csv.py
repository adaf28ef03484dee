"""A run as a folder of CSV files (RFC 4180), one a table, for spreadsheets and scripts."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from advisor.export import tables
from advisor.export.nodes import Node
from advisor.export.tables import Column, Rows
from advisor.metrics.base import Metrics
from advisor.whole import whole

RUN_BY_SPREADSHEETS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""What a text that a spreadsheet takes for a formula begins with (OWASP, "CSV Injection"); the last are wide forms."""


def write(nodes: Iterable[Node], metrics: Metrics, folder: Path) -> None:
    """A file for each table, with the units in the names of its columns; what was not measured is empty.

    Raises:
        ProfilerError: they could not be written.
    """
    tables.write(nodes, metrics, partial(begin, folder))


@contextmanager
def begin(folder: Path, name: str, columns: Sequence[Column]) -> Iterator[Callable[[Rows], None]]:
    """One of them."""
    with (
        whole(folder / f"{name}.csv") as beside,
        open(beside, "w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow([column.name for column in columns])
        yield lambda rows: writer.writerows(map(_defused, rows))


def _defused(row: Sequence[object]) -> list[object]:
    """Texts come from outside: with an apostrophe before it, none of them is a formula."""
    return [f"'{cell}" if isinstance(cell, str) and cell.startswith(RUN_BY_SPREADSHEETS) else cell for cell in row]
