"""An error reads as it would without us: no frame of ours in its traceback, whether it is caught, logged or the end."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any


def step_aside(error: BaseException) -> None:
    """Take the frame of the hook that calls this out of the traceback. A bare `raise` after it adds none anew."""
    traceback = error.__traceback__
    if traceback is not None:
        error.__traceback__ = traceback.tb_next


def install(agent: Any) -> Callable[[], None]:
    """Go before what prints uncaught exceptions; what it prints is its own."""
    plain = sys.excepthook

    def excepthook(kind: Any, value: Any, traceback: Any) -> None:
        agent.failed = True
        try:
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


def _straighten(module_call: types.CodeType, error: Any) -> None:
    """Root modules are called through the slot of `Module.compile`; else torch would have gone one line further."""
    import dis

    at = max(each.offset for each in dis.get_instructions(module_call) if each.opname.startswith("CALL"))
    line = next(line for start, end, line in module_call.co_lines() if start <= at < end)
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
            if frame.f_code is module_call and _only_ours(frame.f_locals["self"]._compiled_call_impl):
                entry = types.TracebackType(following, frame, at, line or entry.tb_lineno)
            else:
                entry.tb_next = following
            following = entry
        error.__traceback__ = following
        error = error.__cause__ or error.__context__


def _only_ours(call: Any) -> bool:
    """The slot holds our wrapper and nothing that the program has put there."""
    return getattr(call, "__wrapped__", call) is None and call is not None
