"""`torch.save`: what checkpoints cost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..dynamo import not_for_dynamo
from ..outlet import clock
from ..ring import SAVE
from ..session import Agent, ident
from ..tracebacks import step_aside


def install(agent: Agent) -> Callable[[], None]:
    """Patch `torch.save`; code that imported the function by name before torch was hooked is not seen."""
    torch = agent.torch
    plain = torch.save

    @functools.wraps(plain)
    def save(*args: Any, **kwargs: Any) -> Any:
        begin = clock()
        try:
            return plain(*args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            agent.put((ident(), SAVE, begin, clock()))

    not_for_dynamo(torch, save)
    # In both places: a process that it is sent to looks for it in the module that it names.
    owners = (torch, torch.serialization)
    for owner in owners:
        owner.save = save

    def undo() -> None:
        for owner in owners:
            if owner.save is save:
                owner.save = plain

    return undo
