"""Hide secrets in a trace, piece by piece, and leave the JSON around them unchanged.

Each event is parsed before its strings are inspected, so a quotation mark that an older Kineto left unescaped in one
name cannot shift where the strings of the next event begin.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from profiler.agent.redact import HIDDEN, is_secret, redact_text
from profiler.errors import ProfilerError
from profiler.importers.stream import Stream

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_KEPT = 10_000
"""Distinct strings whose redacted form is cached; call stacks and counters keep producing new ones."""


class Piece(NamedTuple):
    """A part of the file to write."""

    text: bytes
    changed: bool
    """Whether it hides something, or differs from the file's content in more than layout."""


def redacted(path: Path, known: Sequence[str] = ()) -> Iterator[Piece]:
    """Yield the trace at `path` as valid JSON without secrets; `known` are secrets to hide everywhere.

    Anything that cannot be parsed is left out, because it could contain secrets. A truncated file stays truncated.

    Raises:
        OSError: the file cannot be read.
    """
    stream = Stream(path, raw=True)
    strings = _Strings(known)
    prefix = b'{"traceEvents": [\n'
    try:
        for events in stream:
            yield strings.redact(prefix + b",\n".join(map(bytes, events)))
            prefix = b",\n"
    except ProfilerError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        yield Piece(prefix[:1], changed=True)
        return
    metadata = {name: value for name, value in stream.about.items() if name != "traceEvents"}
    clean_metadata = _values(metadata, known)
    end = b"" if prefix == b",\n" else prefix
    if stream.cut_off:
        yield Piece(end, changed=True)
        return
    tail = b", " + msgspec.json.encode(clean_metadata)[1:] if clean_metadata else b"}"
    yield Piece(end + b"\n]" + tail, changed=clean_metadata != metadata or stream.unreadable > 0 or stream.repaired > 0)


class _Strings:
    """A cache of the redacted strings of a trace, each of which may occur a thousand times."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known
        self._seen: dict[bytes, bytes] = {}

    def redact(self, text: bytes) -> Piece:
        """Replace the strings of `text`, which is valid JSON or the beginning of it."""
        if len(self._seen) > _KEPT:
            self._seen.clear()
        strings = set(_STRING.findall(text))
        for string in strings - self._seen.keys():
            self._seen[string] = self._clean(string)
        if all(self._seen[string] == string for string in strings):
            return Piece(text, changed=False)
        return Piece(_STRING.sub(lambda match: self._seen[match[0]], text), changed=True)

    def _clean(self, string: bytes) -> bytes:
        text = json.loads(string.decode(errors="replace"), strict=False)
        clean_text = redact_text(text, self._known)
        return string if clean_text == text else json.dumps(clean_text).encode()


def _values(value: Any, known: Sequence[str]) -> Any:
    """Return the values around the events without secrets; a program may add entries of any name."""
    if isinstance(value, str):
        return redact_text(value, known)
    if isinstance(value, list):
        return [_values(item, known) for item in value]
    if isinstance(value, dict):
        return {
            redact_text(name, known): HIDDEN if isinstance(item, str) and is_secret(name) else _values(item, known)
            for name, item in value.items()
        }
    return value
