"""Find the program's own lines on the stack, and the frameworks between them and torch.

Only code objects and globals are read. Reading a frame's `f_locals` would do harm: before Python 3.13 it makes a copy
that keeps the program's tensors alive, and writes into a dictionary that the program may have got from `locals()`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from .look import ByIdentity, class_dict_of, dict_of
from .tracebacks import OURS

# Framework by prefix of a module's name; None for modules that start programs and run no training loop.
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
    """Return the innermost line of the user's own code on the stack, or None.

    Code of torch, of installed packages and of the agent does not count. `via` lists the frameworks between that line
    and the object being made, outermost first.
    """
    fallback = None
    via: list[str] = []
    for frame in outwards(sys._getframe(1)):
        file = frame.f_code.co_filename
        if is_users(file):
            return {**_line(frame), "via": via} if via else _line(frame)
        _note(via, frame)
        if fallback is None and _is_a_file(file) and f"{os.sep}torch{os.sep}" not in file:
            fallback = frame
    return None if fallback is None else _line(fallback)


def callers() -> list[dict[str, Any]]:
    """Return up to MOST_CALLERS of the user's own lines on the stack, innermost first."""
    user_frames = (frame for frame in outwards(sys._getframe(1)) if is_users(frame.f_code.co_filename))
    return [_line(frame) for frame in islice(user_frames, MOST_CALLERS)]


class Places(ByIdentity):
    """The places where objects were made: `place` and `callers` for each object."""

    def note(self, instance: Any, *_: Any, **__: Any) -> None:
        """Record the lines that construct an object.

        Use it as the `before` of `observe`, for the constructor or for a function that the constructor calls.
        """
        try:
            if self.get(instance) is None:
                self.put(instance, {"place": place(), "callers": callers()})
        except Exception:  # a place is optional
            pass


def frameworks() -> list[str]:
    """Return the frameworks on the stack, outermost first; the first one drives the loop."""
    names: list[str] = []
    for frame in outwards(sys._getframe(1)):
        _note(names, frame)
    return names


def outwards(frame: Any) -> Iterator[Any]:
    """Yield a frame and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _note(found: list[str], frame: Any) -> None:
    """Move this frame's framework to the front."""
    module = dict.get(frame.f_globals, "__name__")
    if not isinstance(module, str) or module.partition(".")[0] not in _PACKAGES:
        return
    name = next((name for beginning, name in _FRAMEWORKS if module.startswith(beginning)), None)
    if name is not None:
        if name in found:
            found.remove(name)
        found.insert(0, name)


def _line(frame: Any) -> dict[str, Any]:
    file = frame.f_code.co_filename
    return {"file": _cell(file) or os.path.abspath(file), "line": frame.f_lineno}


def _cell(file: str) -> str | None:
    """Return "notebook cell 2" for the name under which ipykernel compiles a cell; None for a file."""
    if not os.path.basename(os.path.dirname(file)).startswith("ipykernel_"):
        return None
    module = sys.modules.get("IPython.core.interactiveshell")
    cls = dict_of(module).get("InteractiveShell")
    shell = class_dict_of(cls).get("_instance") if isinstance(cls, type) else None
    number = dict_of(dict_of(shell).get("compile")).get("_filename_map", {}).get(file)
    return "notebook cell" if number is None else f"notebook cell {number}"


def _is_a_file(file: str) -> bool:
    return not file.startswith("<") and not file.startswith(OURS)


def is_users(file: str) -> bool:
    """Return whether code of that file is the program's own."""
    is_package = "site-packages" in file or "dist-packages" in file
    return _is_a_file(file) and not is_package and not file.startswith(_STDLIB)


_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
