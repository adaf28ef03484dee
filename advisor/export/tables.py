"""Write a run as tables: those of its recording, node by node, and the report's metrics."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from advisor.export.nodes import Node
from advisor.export.units import heading, unit
from advisor.metrics.base import Metrics
from advisor.report.quantities import quantities
from profiler.store.tables import COLUMNS, NAMES
from profiler.store.values import hints, kind

Rows = Iterable[Sequence[object]]
"""Rows of a table; None in them is "not measured"."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: type
    """int, float, bool or str; structured values are JSON in a str."""
    unit: str = ""


Open = Callable[[Path, str, Sequence[Column]], AbstractContextManager[Callable[[Rows], None]]]
"""A format's function that opens a table with this name and these columns in a folder.

It yields a function that takes rows and may be called repeatedly.
"""

METRICS = (
    Column("name", str),
    Column("value", float),
    Column("unit", str),
    Column("meaning", str),
    Column("missing", str),
    Column("remedy", str),
)


def write(begin: Open, nodes: Iterable[Node], metrics: Metrics, folder: Path) -> None:
    """Write all tables into a folder, in the format of `begin`.

    Raises:
        ProfilerError: they could not be written, or a package for the format is not installed.
    """
    with ExitStack() as stack:
        takers = {cls: stack.enter_context(begin(folder, name, columns(cls))) for cls, name in NAMES.items()}
        take_metrics = stack.enter_context(begin(folder, "metrics", METRICS))
        for node in nodes:
            for cls, take in takers.items():
                take(_rows(node, cls))
        take_metrics(_metrics(metrics))


def columns(cls: type) -> tuple[Column, ...]:
    """Return the columns of the table for this class of rows: the node's host, then the fields."""
    return (Column("node", str), *(_column(cls, name, hint) for name, hint in hints(cls).items()))


def _column(cls: type, name: str, hint: object) -> Column:
    column_type = kind(hint)
    if column_type in (int, float):
        return Column(heading(cls, name), column_type, unit(cls, name))
    return Column(name, bool if column_type is bool else str)


def _rows(node: Node, cls: type) -> Iterator[Sequence[object]]:
    for row in getattr(node.tables, NAMES[cls]):
        yield (node.run.host, *COLUMNS[cls].encode(row))


def _metrics(metrics: Metrics) -> Iterator[Sequence[object]]:
    for quantity in quantities(metrics):
        value = None if quantity.value is None else float(quantity.value)
        yield quantity.name, value, quantity.unit, quantity.meaning, quantity.missing or None, quantity.remedy or None
