"""Make text from outside safe to show in a terminal or on a page, and write notes to the user."""

import contextlib
import sys


def say(note: str) -> None:
    """Write a note to the user on stderr, if it is still open."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # AttributeError: pythonw has no stderr
        sys.stderr.write(f"profile-train: {printable(note)}\n")
        sys.stderr.flush()


def printable(text: str, *, lines: bool = False) -> str:
    """Return the text with characters that could control a terminal or mislead a reader made visible.

    ESC, a right-to-left override or a lone surrogate becomes a Python escape sequence. White space becomes plain
    spaces; with `lines`, line ends and tabs stay.
    """
    if text.isprintable():
        return text
    allowed = "\n\t" if lines else ""
    return "".join(
        character
        if character.isprintable() or character in allowed
        else " "
        if character.isspace() and character not in _CONTROLS
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


# White space in Python, but not in a terminal.
_CONTROLS = "\x1c\x1d\x1e\x1f\x85"
