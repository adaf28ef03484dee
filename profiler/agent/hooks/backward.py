"""Backward passes: `Tensor.backward`, `torch.autograd.backward` and `torch.autograd.grad`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..dynamo import not_for_dynamo
from ..outlet import clock
from ..ring import BACKWARD, MARK_BACKWARD_END, MARK_BACKWARD_START
from ..session import Agent, ident
from ..tracebacks import step_aside


def install(agent: Agent) -> Callable[[], None]:
    """Patch the two public functions; `Tensor.backward` calls the first by name."""
    autograd = agent.torch.autograd
    undo = [_hook(agent, autograd, "backward", 0), _hook(agent, autograd, "grad", 1)]

    def uninstall() -> None:
        for each in undo:
            each()

    return uninstall


def _hook(agent: Agent, autograd: Any, name: str, code: int) -> Callable[[], None]:
    plain = getattr(autograd, name)
    is_compiling = agent.torch.compiler.is_compiling
    dynamo = agent.dynamo
    inside = agent.in_backward
    mark = agent.mark
    put = agent.put

    @functools.wraps(plain)
    def run(*args: Any, **kwargs: Any) -> Any:
        if dynamo and is_compiling():
            return plain(*args, **kwargs)
        thread = ident()
        outermost = thread not in inside
        if outermost:
            inside.add(thread)
            if mark is not None:
                mark(MARK_BACKWARD_START)
        begin = clock()
        try:
            return plain(*args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            end = clock()
            if outermost:
                inside.discard(thread)
                if mark is not None:
                    mark(MARK_BACKWARD_END)
            put((thread, BACKWARD, begin, end, 0, code))

    not_for_dynamo(agent.torch, run)
    setattr(autograd, name, run)

    def undo() -> None:
        if getattr(autograd, name) is run:
            setattr(autograd, name, plain)

    return undo
