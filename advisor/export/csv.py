"""Export a run as a folder of CSV files (RFC 4180), one per table, for spreadsheets and scripts."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from advisor.atomic_write import whole
from advisor.export import tables
from advisor.export.tables import Column, Rows

RUN_BY_SPREADSHEETS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""First characters that turn a text into a formula in a spreadsheet (OWASP, "CSV Injection").

The last four are wide forms.
"""


@contextmanager
def begin(folder: Path, name: str, columns: Sequence[Column]) -> Iterator[Callable[[Rows], None]]:
    """Open the file of one table, and yield a function that takes its rows."""
    with (
        whole(folder / f"{name}.csv") as temporary,
        open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow([column.name for column in columns])
        yield lambda rows: writer.writerows(map(_defused, rows))


def _defused(row: Sequence[object]) -> list[object]:
    """Return the row with an apostrophe before formulas: external text must not be executed."""
    return [f"'{cell}" if isinstance(cell, str) and cell.startswith(RUN_BY_SPREADSHEETS) else cell for cell in row]


write = partial(tables.write, begin)
"""Write a file for each table, with units in the column names; unmeasured values are empty."""
