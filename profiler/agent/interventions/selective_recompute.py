"""Selective recomputation: of a block only what is dear to compute is kept for its backward pass.

That is products with weights, convolutions, attention in one kernel, and what ranks have told each other. What lies
between is computed again: attention's scores where they are written out, norms, activation functions. Each operator of
a block passes a function of Python on its way, which a program that checkpoints the core of its attention by hand does
not pay: where launching kernels is the limit, the trial is slower than the advice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._blocks import replace_in_blocks

# A batched product has weights in neither of its factors: it is one of attention's own two.
_KEPT = ("aten::mm", "aten::addmm", "aten::linear", "aten::convolution")
_KEPT_PREFIXES = ("aten::_scaled_dot_product", "flash_attn::", "_c10d_functional::", "c10d::")


@dataclass(frozen=True)
class SelectiveRecompute:
    """Of every module of a class named `block`."""

    block: str

    def apply(self, agent: Agent) -> Callable[[], None]:
        """In every model that has such blocks, before it is called: the first step may be the one that does not fit.
        Raises ImportError where torch is older than 2.4."""
        from torch.utils.checkpoint import (  # type: ignore[import-not-found,unused-ignore]
            CheckpointPolicy,
            checkpoint,
            create_selective_checkpoint_contexts,
        )

        policies: dict[Any, Any] = {}

        def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
            known = policies.get(operator)
            if known is None:
                kept = is_kept(operator.name())
                known = policies[operator] = CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
            return known

        contexts = functools.partial(create_selective_checkpoint_contexts, policy)

        def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
            return checkpoint(plain, *args, use_reentrant=False, context_fn=contexts, **kwargs)

        return replace_in_blocks(agent, self.block, forward)


def is_kept(operator: str) -> bool:
    """By its qualified name, with or without that of the overload."""
    return operator.partition(".")[0] in _KEPT or operator.startswith(_KEPT_PREFIXES)
