"""Selective recomputation: keep only what is expensive to compute in a block for its backward pass.

Kept are matmuls with weights, convolutions, fused attention, and results of communication between ranks. Everything
else is recomputed: attention scores where they are written out, norms, activation functions. Each operator of a block
passes through a Python function, a cost that a program which checkpoints the core of its attention by hand does not
pay: if the step is launch-bound, the trial is slower than the advice.
"""

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
    """The selective-recomputation change, made to every module of a class named `block`."""

    block: str

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Change every model with such blocks before its first call.

        The first step may be the one that does not fit in memory.

        Raises:
            ImportError: torch is older than 2.4.
        """
        from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts  # type: ignore[import-not-found,unused-ignore]

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
    """Return whether an operator's result is kept, by its qualified name with or without the overload."""
    return operator.partition(".")[0] in _KEPT or operator.startswith(_KEPT_PREFIXES)
