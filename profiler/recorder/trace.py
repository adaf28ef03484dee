"""Reads a Kineto trace: the Chrome trace JSON that torch.profiler writes."""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from profiler.agent.redact import redact_text
from profiler.errors import ProfilerError
from profiler.recorder import private


class Event(NamedTuple):
    """A range on a host thread or on the GPU. Times are seconds from the first event in the file: since 1970, a float
    would tell no less than 0.24 us apart."""

    name: str
    category: str
    """Kineto's: cpu_op, user_annotation, cuda_runtime, cuda_driver, kernel, gpu_memcpy, gpu_memset, ..."""
    thread: tuple[object, object]
    start: float
    end: float
    correlation: int | None
    """Ties GPU work to the call that launched it."""
    inputs: tuple[tuple[int, ...], ...] = ()
    """Shapes of an operator's arguments, where they were recorded; () for what is no tensor, or a list of them."""
    dtype: str | None = None
    """Of the first argument of floating point."""


def read(path: Path) -> list[Event]:
    """All complete ranges of the trace at `path` (.json or .json.gz), in no particular order.

    Raises ProfilerError if the file cannot be read, is cut off, or is no Kineto trace.
    """
    seen: dict[Any, Any] = {}

    def shrink(found: dict[str, Any]) -> object:
        # Called for each object as soon as it is parsed, so that the trace is never held as dictionaries,
        # which take ten times the room.
        return _event(found, seen) if "ph" in found else found

    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            trace = json.load(file, object_hook=shrink, parse_float=Decimal, strict=False)
    except OSError as error:
        raise ProfilerError(f"The profiler trace {path} cannot be read: {error}.", "Record the run again.") from error
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise ProfilerError(
            f"The profiler trace {path} is cut off or is no JSON: {error}.",
            "The program may have been killed, or the disk have been full, while it was written. Record the run again.",
        ) from error
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    found = [event for event in events if isinstance(event, Event)] if isinstance(events, list) else []
    if not found:
        raise ProfilerError(
            f"{path} holds no ranges of a torch.profiler trace.",
            "Use the JSON that export_chrome_trace or tensorboard_trace_handler writes.",
        )
    return found


def redact_trace(path: Path, known: Sequence[str] = ()) -> None:
    """Take secrets out of the names in the trace at `path`: a program may give its regions any. `known` are some that
    are hidden wherever they stand. Names that Kineto has not escaped, and so made the file no JSON, are escaped.

    One that is cut off is treated alike; one that cannot be read or written is left as it is.
    """
    try:
        text = path.read_bytes()
        changed = {name: clean for name in set(_NAME.findall(text)) if (clean := _redacted(name, known)) != name}
        if changed:
            beside = path.with_name(f"{path.name}.new")
            private.write(beside, "")
            beside.write_bytes(_NAME.sub(lambda match: b'"name": "%s"' % changed.get(match[1], match[1]), text))
            os.replace(beside, path)
    except (OSError, MemoryError):
        return


# Up to a quotation mark after which the next key follows, or the end of the line.
_NAME = re.compile(rb'"name": "(.*?)"(?=\s*,\s*"[a-z]+":|[ \t]*,?[ \t]*(?:[\r\n}]|$))', re.DOTALL)


def _redacted(name: bytes, known: Sequence[str]) -> bytes:
    """Of a JSON string's inside."""
    text = name.decode(errors="replace")
    try:
        text = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return json.dumps(redact_text(text, known))[1:-1].encode()
    clean = redact_text(text, known)
    return name if clean == text else json.dumps(clean)[1:-1].encode()


# As Kineto names them.
FLOATING = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
}


_FIRST = object()


def _event(found: dict[str, Any], seen: dict[Any, Any]) -> Event | None:
    """None if it is no range (a counter, an arrow, a label), or one whose end was not seen.

    `seen` holds names and shapes, for a kernel's name may be 2,000 characters, and comes a thousand times; and the
    first time, in microseconds.
    """
    if found["ph"] != "X":
        return None
    args = found.get("args")
    if not isinstance(args, dict):
        args = {}
    if args.get("finished") is False:
        return None
    try:
        name = str(found["name"])
        time = Decimal(found["ts"])
        if not time.is_finite():
            return None
        start = time - seen.setdefault(_FIRST, time)
        end = start + Decimal(found.get("dur", 0))
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None
    correlation = args.get("correlation")
    inputs, dtype = _shapes(args.get("Input Dims")), _dtype(args.get("Input type"))
    return Event(
        seen.setdefault(name, name),
        str(found.get("cat", "")),
        (found.get("pid"), found.get("tid")),
        float(start) * 1e-6,
        float(end) * 1e-6,
        correlation if isinstance(correlation, int) else None,
        seen.setdefault(inputs, inputs),
        dtype,
    )


def _shapes(dims: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(dims, list):
        return ()
    return tuple(tuple(each) if isinstance(each, list) and all(type(n) is int for n in each) else () for each in dims)


def _dtype(types: object) -> str | None:
    names = types if isinstance(types, list) else []
    return next((FLOATING[name] for name in names if isinstance(name, str) and name in FLOATING), None)
