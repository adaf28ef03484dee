"""An error reads as it would without us: no frame of ours in its traceback, whether it is caught, logged or the end."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

# Of an error's text, characters.
MOST_WORDS = 300


def step_aside(error: BaseException) -> None:
    """Take the frame of the hook that calls this out of the traceback. A bare `raise` after it adds none
    anew; before Python 3.11 it brings this one back, and only `_straighten` takes it out."""
    traceback = error.__traceback__
    if traceback is not None:
        error.__traceback__ = traceback.tb_next


def install(agent: Any) -> Callable[[], None]:
    """Go before what prints uncaught exceptions; what it prints is its own."""
    plain = sys.excepthook

    def excepthook(kind: Any, value: Any, traceback: Any) -> None:
        agent.failed = True
        try:
            _tell(agent, value)
            _straighten(agent.torch.nn.Module._wrapped_call_impl.__code__, value)
            traceback = value.__traceback__
        except Exception:  # then one line of torch's own reads differently
            pass
        plain(kind, value, traceback)

    sys.excepthook = excepthook

    def undo() -> None:
        if sys.excepthook is excepthook:
            sys.excepthook = plain

    return undo


def _tell(agent: Any, error: BaseException) -> None:
    """What has ended the program. Its words only where they are torch's own on memory or on a worker: any other
    exception's may hold what is nobody's business."""
    kind = type(error)
    message = None
    if kind.__module__ in ("builtins", "torch"):  # no code of the program is run for these words
        text = error.args[0] if error.args and type(error.args[0]) is str else ""
        if (
            kind.__name__ == "OutOfMemoryError"
            or text.startswith("DataLoader worker")
            or "DefaultCPUAllocator: can't allocate memory" in text
        ):
            message = text[:MOST_WORDS]
    agent.fail({"type": f"{kind.__module__}.{kind.__qualname__}".replace("builtins.", ""), "message": message})


def _straighten(module_call: types.CodeType, error: Any) -> None:
    """Root modules are called through the slot of `Module.compile`; else torch would have gone one line further."""
    import dis

    at = max(each.offset for each in dis.get_instructions(module_call) if each.opname.startswith("CALL"))
    line = [line for start, line in dis.findlinestarts(module_call) if start <= at][-1]
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        entries = []
        entry = error.__traceback__
        while entry is not None:
            entries.append(entry)
            entry = entry.tb_next
        following = None
        for entry in reversed(entries):
            frame = entry.tb_frame
            if frame.f_code.co_filename.startswith(_OURS):  # before Python 3.11, `raise` brings it back
                continue
            if frame.f_code is module_call and _only_ours(frame.f_locals["self"]._compiled_call_impl):
                entry = types.TracebackType(following, frame, at, line or entry.tb_lineno)
            else:
                entry.tb_next = following
            following = entry
        error.__traceback__ = following
        error = error.__context__ if error.__cause__ is None else error.__cause__


_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _only_ours(call: Any) -> bool:
    """The slot holds our wrapper and nothing that the program has put there."""
    return getattr(call, "__wrapped__", call) is None and call is not None
