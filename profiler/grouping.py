"""Group rows by a key."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from profiler.schema import Kernel, Operator, Stack

Row = TypeVar("Row")
TimedRow = TypeVar("TimedRow", Kernel, Operator, Stack)
Key = TypeVar("Key", bound=Hashable)


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Return the rows by key: keys in order of first occurrence, rows in their original order."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def totals(rows: Iterable[TimedRow], key: Callable[[TimedRow], Key]) -> dict[Key, float]:
    """Return the total seconds of the rows by key."""
    return {group: sum(row.total for row in members) for group, members in grouped(rows, key).items()}
