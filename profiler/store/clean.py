"""Clean rows before they are stored: hide secrets and shorten overlong texts."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

from profiler.agent.redact import redact_command, redact_values
from profiler.schema import Fact, Run, Sketch
from profiler.store.values import hints

T = TypeVar("T")

OURS = {Fact: "kind", Sketch: "quantity"}
"""Fields with profile-train's own words.

They stay readable even if such a word is also the value of an option of the program, such as `--sort-key`.
"""

MOST_TEXT = 4_000
"""Maximum characters of a value, far more than names and messages need. A class name could have a million."""


def clean(row: T, known: Sequence[str]) -> T:
    """Return the row without secrets in any of its texts; `known` are secrets to hide everywhere."""
    cls: Any = type(row)
    names = _texts(cls)
    if not names:
        return row
    values: Any = {name: shortened(redact_values(getattr(row, name), known)) for name in names}
    if isinstance(row, Run):
        values["command"] = shortened(redact_command(row.command, known))
    elif isinstance(row, Fact):  # the names of its fields are ours, too
        values["body"] = {name: shortened(redact_values(item, known)) for name, item in row.body.items()}
    original: Any = row
    cleaned: T = replace(original, **values)
    return cleaned


def shortened(value: Any) -> Any:
    """Return the value with all texts in it cut to MOST_TEXT characters."""
    if isinstance(value, str):
        return value if len(value) <= MOST_TEXT else f"{value[:MOST_TEXT]}..."
    if isinstance(value, dict):
        return {shortened(key): shortened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(shortened, value))
    return value


@cache
def _texts(cls: type) -> tuple[str, ...]:
    """Return the fields that may hold text from outside."""
    return tuple(name for name, hint in hints(cls).items() if _holds_text(hint) and name != OURS.get(cls))


def _holds_text(hint: Any) -> bool:
    return hint in (str, object) or (get_origin(hint) is not Literal and any(map(_holds_text, get_args(hint))))
