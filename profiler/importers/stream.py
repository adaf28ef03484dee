"""The events of a trace file, a few thousand at a time, so that a file of any size takes the room of its columns only.

A file that ends too early, or is damaged, gives what can be read of it, and says so.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from profiler.errors import ProfilerError
from profiler.importers.events import Event, Unknown

PIECE = 1 << 19
"""Bytes of JSON that are looked at together: their events stay in the processor's cache until they are columns."""
MOST_HEAD = 1 << 26
"""Bytes before the events: more is some other JSON, and not worth reading to its end."""
MOST_EVENT = 1 << 26
"""Bytes without the end of an event: as above."""
MOST_TORN = 1 << 16
"""Bytes of one event that could not be read whole."""
_COMPRESSED = 1 << 16
_TRIES = 8

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_NO_NUMBER = re.compile(rb":\s*[-+]?(?:nan|inf|infinity)(?=\s*[,}])", re.IGNORECASE)
_AT = re.compile(r"\(byte (\d+)\)")

DECODE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for texts that it cannot read."""

_events = msgspec.json.Decoder(list[Event])
_parts = msgspec.json.Decoder(list[msgspec.Raw])
_leniently = msgspec.json.Decoder(Event, strict=False)
_phases = msgspec.json.Decoder(Unknown)

NO_TRACE = "Give the JSON that torch.profiler's export_chrome_trace or tensorboard_trace_handler writes, packed or not."


class Stream:
    """One file, read once from front to back: iterate over it, then ask what else it said."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about: dict[str, Any] = {}
        """What stands beside the events: devices, ranks, versions."""
        self.cut_off = ""
        """Why there is no more than this, as the end of a sentence; nothing if the file is whole."""
        self.unreadable = 0
        """Events that are no JSON, or none that Kineto writes."""

    def __iter__(self) -> Iterator[list[Any]]:
        """The events, some thousands at a time.

        Raises:
            ProfilerError: the file cannot be read, or is no trace.
        """
        source = self._bytes()
        text = self._head(source)
        bare = not self.about and text[:1] == b"["
        text = text[1:]
        ended = False
        for more in source:
            text += more
            if ended:
                continue
            events, text, ended = self._take(text)
            if events:
                yield events
            if len(text) > MOST_EVENT:
                raise self._no_trace("one of its events does not end")
        if not ended:
            events, text, ended = self._last(text)
            if events:
                yield events
        if ended:
            self._tail(text)
        elif not self.cut_off and not (bare and not text.strip()):
            self.cut_off = "it ends in the middle of its events"

    def _bytes(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                start = file.read(2)
                file.seek(0)
                yield from self._unpacked(file) if start == b"\x1f\x8b" else iter(lambda: file.read(PIECE), b"")
        except OSError as error:
            raise ProfilerError(
                f"The trace {self.path} cannot be read: {error.strerror or error}.", "Give a file that you may read."
            ) from error

    def _unpacked(self, file: Any) -> Iterator[bytes]:
        """Of gzip, several members one after the other as well."""
        unpacker, ready, size = zlib.decompressobj(31), [], 0
        packed = file.read(_COMPRESSED)
        try:
            while packed:
                ready.append(unpacker.decompress(packed, PIECE))
                size += len(ready[-1])
                packed = unpacker.unconsumed_tail
                if unpacker.eof:
                    packed = unpacker.unused_data or file.read(_COMPRESSED)
                    if not packed.startswith(b"\x1f"):
                        break
                    unpacker = zlib.decompressobj(31)
                if size >= PIECE:
                    yield b"".join(ready)
                    ready, size = [], 0
                packed = packed or file.read(_COMPRESSED)
            if not unpacker.eof:
                self.cut_off = "its gzip data ends too early"
        except zlib.error:
            self.cut_off = "its gzip data is damaged"
        yield b"".join(ready)

    def _head(self, source: Iterator[bytes]) -> bytes:
        """Read up to the events; what follows, from their bracket on."""
        text = b""
        for more in source:
            text += more
            start = text.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            if start == b"[":
                return text[text.index(b"[") :]
            if start not in (b"", b"{"):
                raise self._no_trace("it is no JSON")
            for found in _EVENTS.finditer(text):
                about = _object(text[: found.end()] + b"]}")
                if about is not None:
                    self.about = about
                    return text[found.end() - 1 :]
            if len(text) > MOST_HEAD:
                break
        if self.cut_off:
            raise ProfilerError(
                f"Nothing can be read of the trace {self.path}: {self.cut_off}.",
                "Copy it again from where it was made, or record it again.",
            )
        raise self._no_trace("it holds no list of trace events" if text.strip() else "it is empty")

    def _take(self, text: bytes) -> tuple[list[Any], bytes, bool]:
        """The events up to the last that surely ends in `text`, what follows, and whether the list ended there.

        Text between two events may also stand inside one; then what comes before it is no list of events, and the
        place before that is tried.
        """
        end = len(text)
        for _ in range(_TRIES):
            between = _last_between(text, end)
            if between is None:
                break
            end = between.start()
            whole = b"".join((b"[", memoryview(text)[: end + 1], b"]"))
            try:
                return _events.decode(whole), text[between.end() :], False
            except DECODE as error:
                flaw = _flaw(error, whole)
                if (closing := _closing(flaw, whole)) is not None:
                    return self._tolerantly(whole[:closing]), text[closing - 1 :], True
                if not _is_cut(flaw, whole):
                    return self._tolerantly(whole), text[between.end() :], False
        return [], text, False

    def _last(self, text: bytes) -> tuple[list[Any], bytes, bool]:
        """The same of the end of the file."""
        events, rest, ended = self._take(text)
        if not ended:
            closed, rest, ended = self._closed(rest)
            events += closed
        return events, rest, ended

    def _closed(self, rest: bytes) -> tuple[list[Any], bytes, bool]:
        """The last event alone, with or without what ends the list."""
        whole = b"[" + rest
        try:
            return _events.decode(whole), b"", True
        except DECODE as error:
            flaw = _flaw(error, whole)
            closing = len(whole) if flaw is None else _closing(flaw, whole)
            if closing is not None:
                return self._tolerantly(whole[:closing]), whole[closing:], True
        try:
            return _events.decode(whole.rstrip(b", \t\r\n") + b"]"), b"", False
        except DECODE:
            return [], rest, False

    def _tolerantly(self, whole: bytes) -> list[Any]:
        """Each event by itself: one that is no JSON, or has a text where a number belongs, spoils no other."""
        whole = _NO_NUMBER.sub(b": null", whole)
        try:
            return _events.decode(whole)
        except DECODE:
            pass
        found = []
        begun = b""
        for part in self._apart(whole):
            begun += part
            try:
                found.append(_leniently.decode(begun))
            except DECODE as error:
                if _is_cut(_flaw(error, begun), begun) and len(begun) < MOST_TORN:
                    begun += b","  # what stands between two events may also stand inside one
                    continue
                found += self._of_no_known_phase(begun)
            begun = b""
        self.unreadable += bool(begun)
        return found

    def _of_no_known_phase(self, event: bytes) -> list[Any]:
        """The event, if it is no range: of such nothing is kept, whatever else they hold."""
        try:
            found = _phases.decode(event)
        except DECODE:
            found = None
        if found is None or found.ph == "X":
            self.unreadable += 1
            return []
        return [found]

    @staticmethod
    def _apart(whole: bytes) -> list[bytes]:
        """The events; where something is no JSON, what stands between any two objects' ends and begins."""
        try:
            return [bytes(part) for part in _parts.decode(whole)]
        except DECODE:
            *parts, last = _BETWEEN.split(whole[1:-1])
            return [*(part + b"}" for part in parts), last]

    def _tail(self, text: bytes) -> None:
        """What is said of the whole trace after its events."""
        said = _object(b"{" + text.lstrip(b" \t\r\n,"))
        if said is not None:
            self.about = {**self.about, **said}
        elif self.about and not self.cut_off:
            self.cut_off = "it ends in the middle of what follows its events"

    def _no_trace(self, why: str) -> ProfilerError:
        return ProfilerError(f"{self.path} is no trace of torch.profiler: {why}.", NO_TRACE)


def _last_between(text: bytes, before: int) -> re.Match[bytes] | None:
    """The last place in `text` where one object ends and the next begins."""
    at = before
    while (at := text.rfind(b"}", 0, at)) >= 0:
        if found := _BETWEEN.match(text, at):
            return found
    return None


def _flaw(error: Exception, text: bytes) -> Exception | None:
    """What is wrong with its JSON; None if that is only not what Kineto writes."""
    if not isinstance(error, msgspec.ValidationError):
        return error
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except DECODE as flaw:
        return flaw
    return None


def _closing(flaw: Exception | None, text: bytes) -> int | None:
    """How far the list reaches, if it is followed by something else."""
    at = _AT.search(str(flaw))
    if at is None or "trailing characters" not in str(flaw):
        return None
    return text.rindex(b"]", 0, int(at[1]) + 1) + 1


def _is_cut(flaw: Exception | None, text: bytes) -> bool:
    """Whether it ends inside a value, rather than holding one that cannot be read."""
    at = _AT.search(str(flaw))
    return "truncated" in str(flaw) or (at is not None and int(at[1]) >= len(text) - 1)


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(_NO_NUMBER.sub(b": null", text))
    except DECODE:
        return None
    return found if isinstance(found, dict) else None
