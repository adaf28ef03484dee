"""Read the events of a trace file, a few thousand at a time.

A file of any size thus needs memory only for its columns. A truncated or damaged file yields what can be read of it,
and `Stream` records the damage.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw, Struct, defstruct, field

from profiler.errors import ProfilerError

PIECE = 1 << 19
"""Bytes of JSON decoded together: their events stay in the CPU's cache until they become columns."""
MOST_HEAD = 1 << 26
"""Maximum bytes before the events: a file with more is some other JSON, not worth reading to its end."""
MOST_EVENT = 1 << 26
"""Maximum bytes of an event without an end, for the same reason."""
MOST_TORN = 1 << 16
"""Maximum bytes of an event that is put together from several parts."""
_TRIES = 8

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_NAME = re.compile(rb'(?<="name": ").*?(?=",\s*"(?:pid|ph|cat)":)', re.DOTALL)
"""A name as Kineto writes it; until 2024 it did not escape quotation marks and backslashes in names."""
_NO_NUMBER = re.compile(rb":\s*[-+]?(?:nan|inf|infinity)(?=\s*[,}])", re.IGNORECASE)
_AT = re.compile(r"\(byte (\d+)\)")


Text = int | str
"""Text or number: process, thread and stream identifiers are written either way."""

PHASES = "BEiICbneSTpFstfMNOD()PVvRca"
"""Phases of Chrome's format apart from "X": instants, arrows, counters and names. None of these events is kept."""


class Arguments(Struct, gc=False):
    """Kineto's details of an event, apart from its name and time."""

    correlation: int = -1
    """Number that links GPU work to the call that launched it."""
    stream: Text = -1
    collective: str = field(name="Collective name", default="")
    group_size: int = field(name="Group size", default=0)
    group_name: str = field(name="Process Group Name", default="")
    group_about: str = field(name="Process Group Description", default="")
    elements_in: int = field(name="In msg nelems", default=0)
    elements_out: int = field(name="Out msg nelems", default=0)
    dtype: str = ""
    blocks: Any = field(name="blocks per SM", default=None)
    """A number; any other type that a version of Kineto wrote must not invalidate the event."""
    sequence: Any = field(name="Sequence number", default=-1)
    """Number that links an operator's forward and backward pass; as above, any type must be accepted."""
    finished: bool | str = True
    """False for a range whose end was not seen."""
    dims: Raw = field(name="Input Dims", default=Raw())
    types: Raw = field(name="Input type", default=Raw())
    values: Raw = field(name="Concrete Inputs", default=Raw())


class Range(Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a duration; times are microseconds."""

    name: str = ""
    cat: str = ""
    pid: Text = 0
    tid: Text = 0
    ts: float = 0.0
    dur: float = -1.0
    args: Arguments | None = None


Unknown: Any = defstruct("Unknown", [("ph", str, "")], namespace={"cat": ""}, gc=False)
"""An event with an unknown phase or none, such as the empty one that some tools append."""

Event: Any = Range
"""Union that msgspec resolves by the phase, so that the contents of other phases are not built."""
for _phase in PHASES:
    Event |= defstruct("Other", (), namespace={"cat": ""}, gc=False, tag_field="ph", tag=_phase)

DECODE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that msgspec raises for text it cannot read."""

_events = msgspec.json.Decoder(list[Event])
_parts = msgspec.json.Decoder(list[msgspec.Raw])
_leniently = msgspec.json.Decoder(Event, strict=False)
_phases = msgspec.json.Decoder(Unknown)
_part = msgspec.json.Decoder(msgspec.Raw)

NO_TRACE = (
    "Give the JSON that torch.profiler's export_chrome_trace or tensorboard_trace_handler writes, compressed or not."
)


class Stream:
    """One trace file, read once from front to back.

    Iterate over it first; its other attributes are complete after that.
    """

    def __init__(self, path: Path, *, raw: bool = False) -> None:
        """Open the trace at `path`; with `raw`, events are yielded as valid JSON and not decoded."""
        self.path = path
        self._all: msgspec.json.Decoder[Any] = _parts if raw else _events
        self._one: msgspec.json.Decoder[Any] = _part if raw else _leniently
        self._raw = raw
        self.about: dict[str, Any] = {}
        """Everything besides the events: devices, ranks, versions."""
        self.cut_off = ""
        """Why the file ends early, as the end of a sentence; empty if it is whole."""
        self.unreadable = 0
        """Number of events that are not JSON, or not in Kineto's format."""
        self.repaired = 0
        """Number of events that were not JSON until their name was escaped."""

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield the events in lists of a few thousand.

        Raises:
            ProfilerError: the file cannot be read, or is not a trace.
        """
        source = self._bytes()
        text = self._head(source)
        is_list = not self.about and text[:1] == b"["
        text = text[1:]
        ended = False
        for chunk in source:
            text += chunk
            if ended:
                continue
            events, text, ended = self._take(text)
            if events:
                yield events
            if len(text) > MOST_EVENT:
                raise self._no_trace("one of its events does not end")
        for take in (self._take, self._closed):
            if ended:
                break
            events, text, ended = take(text)
            if events:
                yield events
        if ended:
            self._tail(text)
        elif not self.cut_off and not (is_list and not text.strip()):
            self.cut_off = "it ends in the middle of its events"

    def _bytes(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                start = file.read(2)
                file.seek(0)
                yield from self._unpacked(file) if start == b"\x1f\x8b" else iter(lambda: file.read(PIECE), b"")
        except OSError as error:
            raise ProfilerError(
                f"The trace {self.path} cannot be read: {error.strerror or error}.",
                "Check the path and your read permission.",
            ) from error

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the decompressed gzip data, including files of several members."""
        buffer = bytearray()
        try:
            with gzip.GzipFile(fileobj=file) as archive:
                while chunk := archive.read1(PIECE):
                    buffer += chunk
                    if len(buffer) >= PIECE:
                        yield bytes(buffer)
                        buffer.clear()
        except EOFError:
            self.cut_off = "its gzip data ends too early"
        except (gzip.BadGzipFile, zlib.error) as error:
            if not str(error).startswith("Not a gzipped file"):  # gzip ignores what follows the last member
                self.cut_off = "its gzip data is damaged"
        yield bytes(buffer)

    def _head(self, source: Iterator[bytes]) -> bytes:
        """Read up to the events; return the text from their opening bracket on."""
        text = b""
        for chunk in source:
            text += chunk
            start = text.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            if start == b"[":
                return text[text.index(b"[") :]
            if start not in (b"", b"{"):
                raise self._no_trace("it is not JSON")
            for match in _EVENTS.finditer(text):
                metadata = _object(text[: match.end()] + b"]}")
                if metadata is not None:
                    self.about = metadata
                    return text[match.end() - 1 :]
            if len(text) > MOST_HEAD:
                break
        raise self.nothing() or self._no_trace("it contains no list of trace events" if text.strip() else "it is empty")

    def _take(self, text: bytes) -> tuple[list[Any], bytes, bool]:
        """Return the complete events at the start of `text`, the rest, and whether the list ended.

        Text that looks like the gap between two events may also occur inside one. The text before it is then not a list
        of events, and the place before that one is tried.
        """
        end = len(text)
        for _ in range(_TRIES):
            gap = _last_between(text, end)
            if gap is None:
                break
            end = gap.start()
            document = b"".join((b"[", memoryview(text)[: end + 1], b"]"))
            try:
                return self._all.decode(document), text[gap.end() :], False
            except DECODE as error:
                flaw = _flaw(error, document)
                if (list_length := _closing(flaw, document)) is not None:
                    return self._tolerantly(document[:list_length]), text[list_length - 1 :], True
                if not _is_cut(flaw, document):
                    return self._tolerantly(document), text[gap.end() :], False
        return [], text, False

    def _closed(self, rest: bytes) -> tuple[list[Any], bytes, bool]:
        """Return the same as `_take`, for the last event alone, with or without the end of the list."""
        document = b"[" + rest
        try:
            return self._all.decode(document), b"", True
        except DECODE as error:
            flaw = _flaw(error, document)
            list_length = len(document) if flaw is None else _closing(flaw, document)
            if list_length is not None:
                return self._tolerantly(document[:list_length]), document[list_length:], True
        try:
            return self._all.decode(document.rstrip(b", \t\r\n") + b"]"), b"", False
        except DECODE:
            return [], rest, False

    def _tolerantly(self, whole: bytes) -> list[Any]:
        """Decode each event by itself, so that one with invalid JSON or wrong types does not affect the others."""
        whole = _NO_NUMBER.sub(b": null", whole)
        try:
            return self._all.decode(whole)  # type: ignore[no-any-return]
        except DECODE:
            pass
        events = []
        event = b""
        for part in self._apart(whole):
            event += part
            try:
                events.append(self._one.decode(event))
            except DECODE as error:
                if _is_cut(_flaw(error, event), event) and len(event) < MOST_TORN:
                    event += b","  # the text between two events may also occur inside one
                    continue
                events += self._repaired(event)
            event = b""
        self.unreadable += bool(event)
        return events

    def _repaired(self, event: bytes) -> list[Any]:
        """Return the event, read with its name escaped or, if it is not a range, without its contents.

        The result is empty if neither succeeds. The contents of events that are not ranges are never needed.
        """
        with suppress(*DECODE):
            result = self._one.decode(_NAME.sub(_escaped, event, 1))
            self.repaired += 1
            return [result]
        with suppress(*DECODE):
            result = _phases.decode(event)
            if not self._raw and result.ph != "X":
                return [result]
        self.unreadable += 1
        return []

    @staticmethod
    def _apart(whole: bytes) -> list[bytes]:
        """Split a list into its events.

        If it is not valid JSON, it is split at every place that looks like a gap between two.
        """
        try:
            return [bytes(part) for part in _parts.decode(whole)]
        except DECODE:
            *parts, last = _BETWEEN.split(whole[1:-1])
            return [*(part + b"}" for part in parts), last]

    def _tail(self, text: bytes) -> None:
        """Read the data about the whole trace that follows the events."""
        metadata = _object(b"{" + text.lstrip(b" \t\r\n,"))
        if metadata is not None:
            self.about = {**self.about, **metadata}
        elif self.about and not self.cut_off:
            self.cut_off = "it ends early, after its events"

    def nothing(self) -> ProfilerError | None:
        """Return the error for a truncated file of which nothing can be read; None for a complete file."""
        if not self.cut_off:
            return None
        return ProfilerError(
            f"No part of the trace {self.path} can be read: {self.cut_off}.",
            "Copy it again from its source, or record it again.",
        )

    def _no_trace(self, why: str) -> ProfilerError:
        return ProfilerError(f"{self.path} is not a torch.profiler trace: {why}.", NO_TRACE)


def _escaped(name: re.Match[bytes]) -> bytes:
    return msgspec.json.encode(name[0].decode(errors="replace"))[1:-1]


def _last_between(text: bytes, before: int) -> re.Match[bytes] | None:
    """Return the last place in `text` where one object ends and the next begins."""
    position = before
    while (position := text.rfind(b"}", 0, position)) >= 0:
        if match := _BETWEEN.match(text, position):
            return match
    return None


def _flaw(error: Exception, text: bytes) -> Exception | None:
    """Return the flaw in the JSON; None if the JSON is valid but not in Kineto's format."""
    if not isinstance(error, msgspec.ValidationError):
        return error
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except DECODE as flaw:
        return flaw
    return None


def _closing(flaw: Exception | None, text: bytes) -> int | None:
    """Return the length of the list if something else follows it, else None."""
    match = _AT.search(str(flaw))
    if match is None or "trailing characters" not in str(flaw):
        return None
    return text.rindex(b"]", 0, int(match[1]) + 1) + 1


def _is_cut(flaw: Exception | None, text: bytes) -> bool:
    """Return whether the text ends inside a value, as opposed to holding one that cannot be read."""
    match = _AT.search(str(flaw))
    return "truncated" in str(flaw) or (match is not None and int(match[1]) >= len(text) - 1)


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(_NO_NUMBER.sub(b": null", text))
    except DECODE:
        return None
    return value if isinstance(value, dict) else None
