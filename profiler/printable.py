"""Make text from outside safe to show in a terminal or on a page, and write notes to the user."""

import contextlib
import sys


def say(note: str) -> None:
    """Write a note to the user on stderr, if it is still open."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # AttributeError: under pythonw there is none
        sys.stderr.write(f"profile-train: {printable(note)}\n")
        sys.stderr.flush()


def printable(text: str, *, lines: bool = False) -> str:
    """Return the text with every character visible that could control a terminal or mislead a reader.

    ESC, a right-to-left override or half a surrogate pair become Python escape sequences. White space becomes plain
    spaces; with `lines`, line ends and tabs stay.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        each
        if each.isprintable() or each in kept
        else " "
        if each.isspace() and each not in _CONTROLS
        else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


# Python counts these among the blanks; a terminal does not.
_CONTROLS = "\x1c\x1d\x1e\x1f\x85"
