"""`torch.save`: what checkpoints cost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..outlet import clock
from ..ring import SAVE
from ..session import Agent, ident


def install(agent: Agent) -> Callable[[], None]:
    """Patch `torch.save`; code that imported the function by name before torch was hooked is not seen."""
    torch = agent.torch
    plain = torch.save

    @functools.wraps(plain)
    def save(*args: Any, **kwargs: Any) -> Any:
        begin = clock()
        try:
            return plain(*args, **kwargs)
        finally:
            agent.put((ident(), SAVE, begin, clock()))

    torch.save = save

    def undo() -> None:
        if torch.save is save:
            torch.save = plain

    return undo
