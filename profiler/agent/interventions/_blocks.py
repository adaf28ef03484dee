"""The repeated modules to which a change applies."""

from collections.abc import Callable
from typing import Any

from ..facts import written
from ._modification import Modification


def blocks(model: Any, name: str) -> list[Any]:
    """Return the modules whose class has that name, in the model's order."""
    return [module for module in model.modules() if written(module).__name__ == name]


def replace_in_blocks(change: Modification, name: str, forward: Callable[..., Any], every: int = 1) -> None:
    """Run every `every`-th block of each model as `forward(module, plain, ...)`.

    The change is in place before the model's first call: the first step may be the one that does not fit in memory.
    """
    replaced_modules: set[Any] = set()

    def act(model: Any) -> None:
        for module in blocks(model, name)[::every]:
            if module not in replaced_modules:  # a wrapper and the model in it can both be roots
                replaced_modules.add(module)
                change.replace_forward(module, forward)

    change.agent.on_call.append(act)
    change.expect(f"No model contains a module of class {name}.")
