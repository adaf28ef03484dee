"""Text from outside, on its way to a terminal or a page."""

from __future__ import annotations


def printable(text: str, *, lines: bool = False) -> str:
    """With all that a terminal or a reader's eye would obey made visible: ESC as "\\x1b", a right-to-left override as
    "\\u202e", half a surrogate pair as "\\ud800". Blanks become spaces; with `lines`, line ends and tabs stay.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        each
        if each.isprintable() or each in kept
        else " "
        if each.isspace() and each not in _CONTROLS
        else _shown(each)
        for each in text
    )


# Python counts these among the blanks; a terminal does not.
_CONTROLS = "\x1c\x1d\x1e\x1f\x85"


def _shown(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
