"""Convert dataclasses to SQLite rows and back, by their annotations alone.

Rows that are read may come from another version or be incomplete. A value that does not fit its annotation is replaced
by the field's default; without a default no object is made.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from itertools import repeat
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from profiler.schema import FACTS, Fact

T = TypeVar("T")

_SQL = {int: "INTEGER", bool: "INTEGER", float: "REAL", str: "TEXT"}
_INFINITE = frozenset((math.inf, -math.inf))


class Misfit(Exception):
    """A value does not have the required type."""


def decode_fact(fact: Fact) -> object | None:
    """Return the fact as the dataclass of its kind; None for an unknown kind or a missing required field."""
    cls = FACTS.get(fact.kind)
    if cls is None:
        return None
    try:
        instance: object = build(cls, fact.body)
    except Misfit:
        return None
    return instance


def build(cls: type, values: Mapping[str, object]) -> Any:
    """Build a `cls` from parsed JSON.

    Unknown names are ignored; missing or unfit values get their default.

    Raises:
        Misfit: such a value has no default.
    """
    arguments = fitting(cls, values)
    if not _required(cls) <= arguments.keys():
        raise Misfit
    return cls(**arguments)


def fitting(cls: type, values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values, parsed from JSON, that fit the fields of their names."""
    arguments = {}
    for name in hints(cls).keys() & values.keys():
        with suppress(Misfit):
            arguments[name] = fit(values[name], hints(cls)[name])
    return arguments


def fit(value: object, hint: Any) -> Any:
    """Convert `value`, from `parse`, to the annotated type.

    Raises:
        Misfit: it does not fit.
    """
    import msgspec  # imported late: a recorder needs it only once the program runs

    try:
        return msgspec.convert(value, hint, str_keys=True)
    except (msgspec.ValidationError, ValueError, RecursionError):
        raise Misfit from None


def parse(text: str | bytes) -> Any:
    """Parse JSON; values that no table can store become None: NaN, infinity, and integers beyond 64 bits.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_int=lambda digits: _measured(int(digits)), parse_constant=lambda _: None)


@cache
def hints(cls: type) -> dict[str, Any]:
    """Return the annotations of a dataclass's fields, in their order."""
    annotations = get_type_hints(cls)
    return {field.name: annotations[field.name] for field in fields(cls)}


def kind(hint: Any) -> Any:
    """Return the annotation without `| None`, and `str` for a Literal of texts."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (option for option in get_args(hint) if option is not NoneType)
    return str if get_origin(hint) is Literal else hint


@cache
def _required(cls: type) -> frozenset[str]:
    """Return the fields without a default."""
    return frozenset(
        field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING
    )


def made_of(cls: type[T], columns: Mapping[str, Iterable[object]], number: int) -> list[T]:
    """Return `number` instances of a dataclass with slots, from the values of each field or its default.

    The fields are set one by one, without a Python call per object: that is five times as fast.
    """
    instances: list[Any] = [object.__new__(cls) for _ in range(number)]
    for field in fields(cls):  # type: ignore[arg-type]
        values = columns.get(field.name)
        if values is None:
            factory = field.default_factory
            values = iter(factory, MISSING) if callable(factory) else repeat(field.default)
        deque(map(getattr(cls, field.name).__set__, instances, values), maxlen=0)
    return instances


def with_columns(rows: Sequence[T], **columns: Iterable[object]) -> list[T]:
    """Return the rows with these columns replaced, as `dataclasses.replace` does for a single one."""
    if not rows:
        return []
    cls = type(rows[0])
    originals = {field.name: map(attrgetter(field.name), rows) for field in fields(cls)}  # type: ignore[arg-type]
    return made_of(cls, {**originals, **columns}, len(rows))


class Columns:
    """The conversion between the rows of one dataclass and its table."""

    def __init__(self, cls: type) -> None:
        self._cls = cls
        self._hints = hints(cls)
        self.names = tuple(self._hints)
        self._get = attrgetter(*self.names)
        self._encoders = [
            (index, encoder) for index, hint in enumerate(self._hints.values()) if (encoder := _encoder(hint))
        ]

    @property
    def types(self) -> dict[str, str]:
        """Return the SQL types by column; JSON is stored as text."""
        return {name: _SQL.get(kind(hint), "TEXT") for name, hint in self._hints.items()}

    def encode(self, row: object) -> Sequence[object]:
        """Return the row's values as SQLite accepts them; integers that may not be None must fit 64 bits."""
        values: tuple[object, ...] = self._get(row)
        if not self._encoders:
            return values
        encoded = list(values)
        for index, encoder in self._encoders:
            if encoded[index] is not None:
                encoded[index] = encoder(encoded[index])
        return encoded

    def decode(self, names: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[list[Any], int]:
        """Return the rows, which hold the columns `names`, as dataclasses, and the number of unfit values."""
        if not _required(self._cls) <= set(names):
            return [], len(rows)
        unfit_count = 0
        columns = {}
        for name, column in zip(names, zip(*rows, strict=True) if rows else (), strict=False):
            hint = self._hints[name]
            has_infinite = kind(hint) is float and not _INFINITE.isdisjoint(column)
            if has_infinite or not set(map(type, column)) <= _plain(hint):
                column = tuple(self._decode(name, value) for value in column)
                unfit_count += column.count(MISSING)
            columns[name] = column
        if not unfit_count:
            return made_of(self._cls, columns, len(rows)), 0
        instances = []
        for values in zip(*columns.values(), strict=True):
            arguments = {name: value for name, value in zip(names, values, strict=True) if value is not MISSING}
            if _required(self._cls) <= arguments.keys():
                instances.append(self._cls(**arguments))
        return instances, unfit_count

    def _decode(self, name: str, value: Any) -> Any:
        hint = self._hints[name]
        try:
            if kind(hint) is bool and type(value) is int:
                value = bool(value)
            elif kind(hint) not in _SQL and value is not None:
                value = parse(value)
            return MISSING if type(value) is float and value in _INFINITE else fit(value, hint)
        except (Misfit, ValueError, TypeError, RecursionError):
            return MISSING


def _encoder(hint: Any) -> Callable[[Any], object] | None:
    if kind(hint) is int and hint is not int:
        return _measured
    if kind(hint) is str:
        return _text
    return None if kind(hint) in _SQL else _json


def _measured(value: int) -> int | None:
    """Return the value, or None if it exceeds 64 bits: drivers set all bits for "not available"."""
    return value if -(2**63) <= value < 2**63 else None


def _text(value: str) -> str:
    """Return the text as valid UTF-8: file names and arguments may hold other bytes, which SQLite rejects."""
    return value.encode("utf-8", "backslashreplace").decode()


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def _plain(hint: Any) -> set[type]:
    """Return the types of a column's values that need no decoding."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return {option for option in options if option in (int, float, str, NoneType)}
