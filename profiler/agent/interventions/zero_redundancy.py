"""ZeRO stage 1: each rank keeps and updates a part of the optimizer's state, and the ranks tell each other the weights.

Optimizers that update each element by itself, as those of torch.optim do but LBFGS, come to the same weights. A program
that saves their state has to gather it first, which it does not know: it fails at its first checkpoint.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._expected import expect


@dataclass(frozen=True)
class ZeroRedundancy:
    """`name` is a class of torch.optim."""

    name: str

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Every one made from now on, once there are ranks to share with; what is updated must be under
        DistributedDataParallel, for the ranks' weights become those of one."""
        from torch.distributed.optim import (  # type: ignore[import-not-found,unused-ignore]
            ZeroRedundancyOptimizer,
        )

        torch = agent.torch
        plain = getattr(torch.optim, self.name)
        signature = inspect.signature(plain)
        distributed = torch.distributed
        made: list[bool] = []
        parallel: list[bool] = []

        class Replaced(ZeroRedundancyOptimizer):  # type: ignore[misc]
            """Takes the arguments of the other, and is one where there are no ranks yet."""

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                return super().__new__(cls) if distributed.is_initialized() else plain(*args, **kwargs)

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                given = signature.bind(*args, **kwargs).arguments
                super().__init__(_groups(given.pop("params")), optimizer_class=plain, **given)
                made[:] = [True]

        for name in ("__name__", "__qualname__", "__module__"):
            setattr(Replaced, name, getattr(ZeroRedundancyOptimizer, name))

        def act(root: Any) -> None:
            if any(isinstance(model, torch.nn.parallel.DistributedDataParallel) for model in root.modules()):
                parallel[:] = [True]

        modules = [torch.optim, sys.modules[plain.__module__]]
        for module in modules:
            setattr(module, self.name, Replaced)
        agent.on_model.append(act)
        expect(agent, lambda: made and parallel, f"No {self.name} was made by ranks that train one model.")

        def undo() -> None:
            for module in modules:
                if getattr(module, self.name) is Replaced:
                    setattr(module, self.name, plain)

        return undo


def _groups(params: Any) -> list[Any]:
    """Of lists: torch's goes through what a group holds twice, and an iterator is empty the second time."""
    return [{**each, "params": _listed(each["params"])} if isinstance(each, dict) else each for each in params]


def _listed(params: Any) -> Any:
    return params if hasattr(params, "element_size") else list(params)
