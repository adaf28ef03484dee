"""ZeRO stage 1: each rank keeps and updates a part of the optimizer state; ranks exchange weights.

Optimizers that update each element independently, as all of torch.optim except LBFGS do, arrive at the same weights. A
program that saves their state would have to gather it first. An unchanged program does not, so it fails at its first
checkpoint.
"""

import inspect
from typing import Any

from ._modification import Modification
from ._updates import replace_optimizer


def apply(change: Modification, name: str) -> None:
    """Replace every optimizer of class `name` of torch.optim made from now on, once there are ranks to share with.

    The updated model must be under DistributedDataParallel, because all ranks receive the weights of one rank.
    """
    from torch.distributed.optim import ZeroRedundancyOptimizer  # type: ignore[import-not-found,unused-ignore]

    torch = change.torch
    plain = getattr(torch.optim, name)
    signature = inspect.signature(plain)
    distributed = torch.distributed
    parallel: list[bool] = []

    class ShardedOptimizer(ZeroRedundancyOptimizer):  # type: ignore[misc]
        """The sharded optimizer with torch's arguments; before there are ranks, it creates torch's own optimizer."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return super().__new__(cls) if distributed.is_initialized() else plain(*args, **kwargs)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            arguments = signature.bind(*args, **kwargs).arguments
            super().__init__(_groups(arguments.pop("params")), optimizer_class=plain, **arguments)
            change.made = True

    def act(root: Any) -> None:
        if any(isinstance(model, torch.nn.parallel.DistributedDataParallel) for model in root.modules()):
            parallel[:] = [True]

    change.agent.on_model.append(act)
    replace_optimizer(change, name, ShardedOptimizer)
    change.expect(f"No {name} was created for a model in DistributedDataParallel.", lambda: change.made and parallel)


def _groups(params: Any) -> list[Any]:
    """Return the parameter groups with their parameters as lists.

    torch reads a group's parameters twice, and an iterator would then be empty.
    """
    return [{**entry, "params": _listed(entry["params"])} if isinstance(entry, dict) else entry for entry in params]


def _listed(params: Any) -> Any:
    return params if hasattr(params, "element_size") else list(params)
