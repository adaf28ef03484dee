"""Change how DistributedDataParallel sends gradients: in 16 bits, larger buckets, or without copies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from ..patching import patch
from ..session import Agent
from ._expected import NotMade, expect

_HOOKS = {"bfloat16": "bf16_compress_hook", "float16": "fp16_compress_hook"}


@dataclass(frozen=True)
class DdpHook:
    """The DistributedDataParallel change.

    `dtype` is "bfloat16", "float16" or None; `arguments` are the arguments of DistributedDataParallel to override.
    """

    dtype: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Override the arguments of new wrappers, and give each model the hook once it is known.

        Anything that torch refuses, such as bfloat16 without NCCL or a second hook, is reported as a problem.

        Raises:
            NotMade: there is nothing to change.
            TypeError: `arguments` names no argument of DistributedDataParallel.
        """
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # type: ignore[import-not-found,unused-ignore]

        if self.dtype is None and not self.arguments:
            raise NotMade("There is nothing to change.", "no-target")
        cls = agent.torch.nn.parallel.DistributedDataParallel
        hook = None if self.dtype is None else getattr(default_hooks, _HOOKS[self.dtype])
        changed: list[Any] = []
        plain = cls.__init__
        signature = inspect.signature(plain)
        signature.bind_partial(**self.arguments)  # raises for what is no argument

        @wraps(plain)
        def __init__(module: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(module, *args, **kwargs)
            given.arguments.update(self.arguments)
            plain(*given.args, **given.kwargs)
            if hook is None:
                changed.append(module)

        def act(root: Any) -> None:
            for model in root.modules():
                if isinstance(model, cls) and model not in changed:
                    changed.append(model)
                    model.register_comm_hook(None, hook)

        if hook is not None:
            agent.on_model.append(act)
        expect(agent, lambda: changed, "No model is under DistributedDataParallel.")
        return patch("__init__", plain, __init__, cls)
