"""Keep our frames out of the tracebacks a user sees: an uncaught error reads as it would without us."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def install(agent: Any) -> Callable[[], None]:
    """Go before the hooks that print uncaught exceptions; what they print is theirs."""
    plain = sys.excepthook
    plain_thread = threading.excepthook

    def excepthook(kind: Any, value: Any, traceback: Any) -> None:
        agent.failed = True
        clean(value)
        plain(kind, value, value.__traceback__ if value is not None else traceback)

    def thread_excepthook(arguments: Any) -> None:
        clean(arguments.exc_value)
        plain_thread(
            threading.ExceptHookArgs(
                (
                    arguments.exc_type,
                    arguments.exc_value,
                    getattr(arguments.exc_value, "__traceback__", arguments.exc_traceback),
                    arguments.thread,
                )
            )
        )

    sys.excepthook = excepthook
    threading.excepthook = thread_excepthook

    def undo() -> None:
        if sys.excepthook is excepthook:
            sys.excepthook = plain
        if threading.excepthook is thread_excepthook:
            threading.excepthook = plain_thread

    return undo


def clean(error: Any) -> None:
    """Cut our frames out of an exception's traceback, and out of those it was caused by."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _without_ours(error.__traceback__)
        clean_context = error.__context__
        error = error.__cause__ or clean_context


def _without_ours(traceback: Any) -> Any:
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_OURS):
        traceback = traceback.tb_next
    entry = traceback
    while entry is not None:
        following = entry.tb_next
        while following is not None and following.tb_frame.f_code.co_filename.startswith(_OURS):
            following = following.tb_next
        entry.tb_next = following
        entry = following
    return traceback
