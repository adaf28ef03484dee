"""Read what a user declares on a command line or in a file."""

import csv
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from advisor.metrics.base import Goals, Quality
from advisor.plan import quantities
from profiler.errors import ProfilerError

GOALS = ("throughput", "memory", "cost", "latency")

_QUALITY = re.compile(r"\s*([^\s<>=]+)\s*(>=|<=|>|<)\s*(\S+)\s*")


def _goal(text: str) -> str:
    if text not in GOALS:
        raise ValueError(f"{text!r} is not a goal. Write one of {', '.join(GOALS)}.")
    return text


def quality(text: str) -> Quality:
    """Read a quality target, e.g. "val_acc>=0.76".

    Raises:
        ValueError: the text is not a metric with a target.
    """
    match = _QUALITY.fullmatch(text)
    target = _number(match[3]) if match else None
    if not match or target is None:
        raise ValueError(f'{text!r} is not a metric with a target. Write "val_acc>=0.76" or "loss<2.1".')
    return Quality(match[1], cast(Any, match[2]), target)


def _batch(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number of samples. Write a whole number above zero.")
    return int(text)


def _price(text: str) -> float:
    value = _number(text)
    if value is None or value < 0:
        raise ValueError(f'{text!r} is not a price. Write a number such as "2.5".')
    return value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


READERS: Mapping[str, Callable[[str], Any]] = {
    "goal": _goal,
    "target_batch": _batch,
    "quality": quality,
    "gpu_price": _price,
    "mtbf": quantities.seconds,
    "restart": quantities.seconds,
    "spot_discount": quantities.share,
    "queue_share": quantities.share,
}
"""The reader of each field of Goals that is written as text. ValueError says what is wrong and how to write it."""


def goals(declared: Mapping[str, Any]) -> Goals:
    """Return the Goals with these values by name.

    `validation` names a file that is read only now: the training may have written it.

    Raises:
        ProfilerError: the validation file cannot be read.
    """
    results = {"validation": validation(declared["validation"])} if "validation" in declared else {}
    return Goals(**{**declared, **results})


def validation(name: str) -> tuple[float, ...]:
    """Read one number per line, or a column of a CSV file with a header (FILE:COLUMN).

    Empty cells are skipped.

    Raises:
        ProfilerError: the file cannot be read, or holds no such numbers.
    """
    path, column = _path_and_column(name)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProfilerError(
            f"The validation file {path} cannot be read: {reason}.", "Give a text or CSV file."
        ) from error
    empty_error = ProfilerError(f"The validation file {path} contains no numbers.", "Give one number per validation.")
    if not rows:
        raise empty_error
    if column is None and max(map(len, rows)) == 1:
        index, header = 0, _number(rows[0][0]) is None
    else:
        names = [cell.strip() for cell in rows[0]]
        if column not in names:
            problem = f"no column {column}" if column else "several columns"
            raise ProfilerError(
                f"The validation file {path} has {problem}.",
                f"Name one: {path}:COLUMN. Its columns: {', '.join(names)}.",
            )
        index, header = names.index(column), True
    cells = [row[index] for row in rows[header:] if index < len(row) and row[index].strip()]
    if not cells:
        raise empty_error
    values = [_number(cell) for cell in cells]
    if None in values:
        raise ProfilerError(
            f"The validation file {path} contains {cells[values.index(None)]!r} instead of a number.",
            "Give one number per validation.",
        )
    return tuple(cast(list[float], values))


def _path_and_column(name: str) -> tuple[Path, str | None]:
    path, colon, column = name.rpartition(":")
    return (Path(path), column) if colon and not Path(name).exists() else (Path(name), None)
