"""Change how DistributedDataParallel sends gradients: in 16 bits, larger buckets, or without copies."""

from __future__ import annotations

import inspect
from typing import Any

from ._modification import Modification, NotMade

_HOOKS = {"bfloat16": "bf16_compress_hook", "float16": "fp16_compress_hook"}


def apply(change: Modification, dtype: str | None = None, arguments: dict[str, Any] | None = None) -> None:
    """Override the arguments of new wrappers, and give each model the hook for `dtype` once it is known.

    `dtype` is "bfloat16", "float16" or None. Anything that torch refuses, such as bfloat16 without NCCL or a second
    hook, is reported as a problem.

    Raises:
        NotMade: there is nothing to change.
        TypeError: `arguments` names no argument of DistributedDataParallel.
    """
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # type: ignore[import-not-found,unused-ignore]

    overrides = arguments or {}
    if dtype is None and not overrides:
        raise NotMade("There is nothing to change.", "no-target")
    cls = change.torch.nn.parallel.DistributedDataParallel
    hook = None if dtype is None else getattr(default_hooks, _HOOKS[dtype])
    signature = inspect.signature(cls.__init__)
    signature.bind_partial(**overrides)  # raises for an unknown argument
    hooked_models: list[Any] = []

    def made(plain: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.arguments.update(overrides)
        plain(*bound.args, **bound.kwargs)
        change.made = change.made or hook is None

    def act(root: Any) -> None:
        for model in root.modules():
            if isinstance(model, cls) and model not in hooked_models:
                hooked_models.append(model)
                change.made = True
                model.register_comm_hook(None, hook)

    if hook is not None:
        change.agent.on_model.append(act)
    change.replace(cls, "__init__", made)
    change.expect("No model is wrapped in DistributedDataParallel.")
