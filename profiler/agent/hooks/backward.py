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
    put = agent.put

    @functools.wraps(plain)
    def run(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return plain(*args, **kwargs)
        agent.backward_depth += 1
        if agent.mark is not None and agent.backward_depth == 1:
            agent.mark(MARK_BACKWARD_START)
        begin = clock()
        try:
            return plain(*args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            end = clock()
            agent.backward_depth -= 1
            if agent.mark is not None and agent.backward_depth == 0:
                agent.mark(MARK_BACKWARD_END)
            put((ident(), BACKWARD, begin, end, 0, code))

    not_for_dynamo(agent.torch, run)
    setattr(autograd, name, run)

    def undo() -> None:
        if getattr(autograd, name) is run:
            setattr(autograd, name, plain)

    return undo
