"""ZeRO stage 3 by torch's own `fully_shard`.

Each rank keeps a part of weights, gradients and optimizer state. It replaces DistributedDataParallel: the program's
wrapper passes calls on to the model, whose repeated blocks are separate units. An optimizer made before the wrapping
gets the new parameters. Sums are computed in another order. All ranks start with rank 0's weights and buffers, as under
DistributedDataParallel; buffers are not broadcast again before every forward pass. A checkpoint of the program holds
only the rank's part, and other lists of parameters that the program has made still hold the old ones.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._blocks import blocks
from ._modification import Modification

_WRAPPER = "DistributedDataParallel"


def apply(change: Modification, block: str | None = None) -> None:
    """Shard every model that is wrapped from now on.

    `block` is the class of the modules that are gathered one by one; None makes the model one unit.

    Raises:
        ImportError: torch is older than 2.6.
    """
    from torch.distributed.fsdp import fully_shard  # type: ignore[import-not-found,unused-ignore]

    torch = change.torch
    parallel = torch.nn.parallel
    plain = parallel.DistributedDataParallel
    signature = inspect.signature(plain)
    optimizers: weakref.WeakSet[Any] = weakref.WeakSet()

    def shard(module: Any) -> None:
        old_parameters = dict(module.named_parameters(remove_duplicate=False))
        for tensor in (*module.parameters(), *module.buffers()):
            torch.distributed.broadcast(tensor.detach(), 0)
        device_type = next(module.parameters()).device.type
        mesh = torch.distributed.init_device_mesh(device_type, (torch.distributed.get_world_size(),))
        for submodule in blocks(module, block) if block else ():
            fully_shard(submodule, mesh=mesh)
        fully_shard(module, mesh=mesh)
        new_parameters = dict(module.named_parameters(remove_duplicate=False))
        replacements = {id(old): new_parameters[path] for path, old in old_parameters.items()}
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["params"] = [replacements.get(id(parameter), parameter) for parameter in group["params"]]
        change.made = True

    class Sharded(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        """A sharding wrapper that takes the arguments of DistributedDataParallel."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            arguments = signature.bind(*args, **kwargs).arguments
            if arguments.get("process_group") is not None:
                change.fail("The program passes its own `process_group`.", "program-does")
            self.module = arguments["module"]
            shard(self.module)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            """Call the sharded model in place of the one that the program wrapped."""
            return self.module(*args, **kwargs)

        @contextmanager
        def no_sync(self) -> Iterator[None]:
            """Keep gradients unreduced, whole and on their rank."""
            self.module.set_requires_gradient_sync(False)
            try:
                yield
            finally:
                self.module.set_requires_gradient_sync(True)

    def made(known: Any, optimizer: Any) -> Any:
        optimizers.add(optimizer)
        return known(optimizer)

    for module in (parallel, parallel.distributed):
        if getattr(module, _WRAPPER) is plain:
            change.put(module, _WRAPPER, Sharded)
    change.replace(torch.optim.Optimizer, "_patch_step_function", made)
    change.expect(f"No model was wrapped in {_WRAPPER}.")
