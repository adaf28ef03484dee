"""Whose code is on the stack: the program's own lines, and the frameworks between them and torch.

Only code objects and globals are looked at. A frame's `f_locals` would do harm: until Python 3.13 it makes a copy that
keeps the program's tensors alive, and writes into a dictionary that the program may have got from `locals()`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

# By the beginning of a module's name. What starts programs and runs no loop is left out.
_FRAMEWORKS = (
    ("transformers.", "transformers"),
    ("accelerate.launchers", None),
    ("accelerate.", "accelerate"),
    ("lightning.fabric.", "fabric"),
    ("lightning_fabric.", "fabric"),
    ("lightning.pytorch.", "lightning"),
    ("pytorch_lightning.", "lightning"),
    ("deepspeed.", "deepspeed"),
)

_PACKAGES = frozenset(beginning.partition(".")[0] for beginning, _ in _FRAMEWORKS)

MOST_CALLERS = 4


def place() -> dict[str, Any] | None:
    """The innermost line of the user's own code on the stack: not torch's, not an installed package's, not ours; and
    by `via` the frameworks that made the thing there on its behalf, outermost first."""
    frame: Any = sys._getframe(1)
    fallback = None
    via: list[str] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            return {**_line(frame), "via": via} if via else _line(frame)
        _note(via, frame)
        if fallback is None and _is_a_file(file) and f"{os.sep}torch{os.sep}" not in file:
            fallback = frame
        frame = frame.f_back
    return None if fallback is None else _line(fallback)


def callers() -> list[dict[str, Any]]:
    """The user's own lines on the stack, innermost first: where a thing was made, and who asked for it."""
    frame: Any = sys._getframe(1)
    found: list[dict[str, Any]] = []
    while frame is not None and len(found) < MOST_CALLERS:
        if is_users(frame.f_code.co_filename):
            found.append(_line(frame))
        frame = frame.f_back
    return found


def frameworks() -> list[str]:
    """Those on the stack, outermost first: the first drives the loop."""
    frame: Any = sys._getframe(1)
    found: list[str] = []
    while frame is not None:
        _note(found, frame)
        frame = frame.f_back
    return found


def _note(found: list[str], frame: Any) -> None:
    """Put this frame's framework first."""
    module = frame.f_globals.get("__name__")
    if not isinstance(module, str) or module.partition(".")[0] not in _PACKAGES:
        return
    for beginning, name in _FRAMEWORKS:
        if module.startswith(beginning):
            if name is not None:
                if name in found:
                    found.remove(name)
                found.insert(0, name)
            return


def _line(frame: Any) -> dict[str, Any]:
    return {"file": os.path.abspath(frame.f_code.co_filename), "line": frame.f_lineno}


def _is_a_file(file: str) -> bool:
    return not file.startswith("<") and not file.startswith(_OURS)


def is_users(file: str) -> bool:
    """Whether code of that file is the program's own."""
    packages = "site-packages" in file or "dist-packages" in file
    return _is_a_file(file) and not packages and not file.startswith(_STDLIB)


_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
