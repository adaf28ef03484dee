"""Python source as text with positions, so that an edit leaves every other byte unchanged."""

from __future__ import annotations

import ast
import codecs
import difflib
import io
import tokenize
import warnings
from collections.abc import Iterable
from typing import NamedTuple


class NoPatch(Exception):
    """The reason why a change cannot be written as a patch, as a sentence."""


class Edit(NamedTuple):
    """The text that replaces the characters from `start` to `end`."""

    start: int
    end: int
    text: str


class SourceFile:
    """A Python file's bytes, text and tree.

    Raises:
        NoPatch: the bytes are not Python source, or writing the text again would change them.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
        body = content[len(self._mark) :]
        try:
            self._encoding = tokenize.detect_encoding(io.BytesIO(body).readline)[0]
            self.text = body.decode(self._encoding)
            if self.text.encode(self._encoding) != body or "\r" in self.text.replace("\r\n", ""):
                raise NoPatch("Its encoding or its line ends cannot be kept.")
            self.tree = _parsed(self.text)
        except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
            raise NoPatch("It is not Python source that this Python can read.") from None
        self._lines = self.text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    @property
    def newline(self) -> str:
        """Return the line ending of the first line."""
        return "\r\n" if self._lines[0].endswith("\r") else "\n"

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where the node begins and ends in the text; the tree's columns are bytes of UTF-8."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def line_end(self, number: int) -> int:
        """Return where the line of that number ends, before its line ending."""
        return self._starts[number - 1] + len(self._lines[number - 1].rstrip("\r"))

    def indent(self, offset: int) -> str:
        """Return the whitespace at the beginning of the line that holds the offset."""
        line = self.text[self.text.rfind("\n", 0, offset) + 1 : offset + 1]
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def edited(self, edits: Iterable[Edit]) -> SourceFile:
        """Return the source with the edits made.

        Raises:
            NoPatch: the result is not Python source.
        """
        text = self.text
        for start, end, replacement in sorted(edits, reverse=True):
            text = text[:start] + replacement + text[end:]
        return SourceFile(self._mark + text.encode(self._encoding))

    def _offset(self, line: int, column: int) -> int:
        prefix = self._lines[line - 1].encode()[:column]
        return self._starts[line - 1] + len(prefix.decode())


def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as on "\d" in the program's strings
        return ast.parse(text)


def unified(before: bytes, after: bytes, path: str) -> bytes:
    """Return the difference in the format of `git apply`; `path` is relative to the folder in which that is run."""
    old, new = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    blank = b"\t" if " " in path else b""  # ends a name with blanks
    _, _, *hunks = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), old, new)
    head = b"diff --git %s %s\n--- %s%s\n+++ %s%s\n" % (old, new, old, blank, new, blank)
    return head + b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in hunks
    )


def _lines(content: bytes) -> list[bytes]:
    return io.BytesIO(content).readlines()


def _quoted(path: str) -> bytes:
    """Return a path as git writes it: in quotes where a byte could end the name or the line."""
    raw = path.encode(errors="surrogateescape")
    if all(byte >= 32 and byte not in b'"\\\x7f' for byte in raw):
        return raw
    escaped = b"".join(b"\\%03o" % byte if byte < 32 or byte in b'"\\\x7f' else bytes([byte]) for byte in raw)
    return b'"' + escaped + b'"'
