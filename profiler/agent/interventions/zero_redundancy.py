"""ZeRO stage 1: each rank keeps and updates a part of the optimizer state; ranks exchange weights.

Optimizers that update each element by itself, as those of torch.optim except LBFGS do, arrive at the same weights. A
program that saves their state would have to gather it first; since it does not know that, it fails at its first
checkpoint.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._expected import expect
from ._updates import replace_optimizer


@dataclass(frozen=True)
class ZeroRedundancy:
    """The ZeRO stage 1 change; `name` is a class of torch.optim."""

    name: str

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Replace every optimizer made from now on, once there are ranks to share with.

        The updated model must be under DistributedDataParallel, because all ranks get the weights of one.
        """
        from torch.distributed.optim import ZeroRedundancyOptimizer  # type: ignore[import-not-found,unused-ignore]

        torch = agent.torch
        plain = getattr(torch.optim, self.name)
        signature = inspect.signature(plain)
        distributed = torch.distributed
        made: list[bool] = []
        parallel: list[bool] = []

        class ShardedOptimizer(ZeroRedundancyOptimizer):  # type: ignore[misc]
            """The sharded optimizer with the arguments of torch's; before there are ranks it creates torch's own."""

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                return super().__new__(cls) if distributed.is_initialized() else plain(*args, **kwargs)

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                given = signature.bind(*args, **kwargs).arguments
                super().__init__(_groups(given.pop("params")), optimizer_class=plain, **given)
                made[:] = [True]

        def act(root: Any) -> None:
            if any(isinstance(model, torch.nn.parallel.DistributedDataParallel) for model in root.modules()):
                parallel[:] = [True]

        agent.on_model.append(act)
        expect(agent, lambda: made and parallel, f"No {self.name} was made by ranks that train one model.")
        return replace_optimizer(torch, self.name, ShardedOptimizer)


def _groups(params: Any) -> list[Any]:
    """Return the parameter groups with their parameters as lists.

    torch reads a group's parameters twice, and an iterator would then be empty.
    """
    return [{**each, "params": _listed(each["params"])} if isinstance(each, dict) else each for each in params]


def _listed(params: Any) -> Any:
    return params if hasattr(params, "element_size") else list(params)
