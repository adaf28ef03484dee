"""The repeated modules to which a change applies."""

from collections.abc import Callable
from typing import Any

from ..facts import written
from ..patching import each_of
from ..session import Agent
from ._expected import expect
from ._replace import replace_forward


def blocks(model: Any, name: str) -> list[Any]:
    """Return the modules whose class has that name, in the model's order."""
    return [module for module in model.modules() if written(module).__name__ == name]


def replace_in_blocks(agent: Agent, name: str, forward: Callable[..., Any], every: int = 1) -> Callable[[], None]:
    """Run every `every`-th block of each model as `forward(module, plain, ...)`; return the undo function.

    The change is in place before the model's first call.
    """
    undo: dict[Any, Callable[[], None]] = {}

    def act(model: Any) -> None:
        for module in blocks(model, name)[::every]:
            if module not in undo:  # a wrapper and the model in it can both be roots
                undo[module] = replace_forward(module, forward)

    agent.on_call.append(act)
    expect(agent, lambda: undo, f"No model has a block {name}.")
    return each_of(undo.values())
