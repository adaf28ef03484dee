"""Selective recomputation: keep only what is expensive to compute in a block for its backward pass.

It keeps matmuls with weights, convolutions, fused attention, and results of communication between ranks. Everything
else is recomputed: attention scores where they are written out, norms, activation functions. Each operator of a block
passes through a Python function. A program that checkpoints the core of its attention by hand avoids this cost: if the
step is launch-bound, the trial is slower than the advice.
"""

import functools
from typing import Any

from ._blocks import replace_in_blocks
from ._modification import Modification

# Not batched matmuls: neither of their factors holds weights, so they are the two matmuls of attention.
_KEPT = ("aten::mm", "aten::addmm", "aten::linear", "aten::convolution")
_KEPT_PREFIXES = ("aten::_scaled_dot_product", "flash_attn::", "_c10d_functional::", "c10d::")


def apply(change: Modification, block: str) -> None:
    """Change every module of a class named `block`.

    Raises:
        ImportError: torch is older than 2.4.
    """
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts  # type: ignore[import-not-found,unused-ignore]

    @functools.cache
    def policy_of(operator: Any) -> Any:
        return CheckpointPolicy.MUST_SAVE if is_kept(operator.name()) else CheckpointPolicy.PREFER_RECOMPUTE

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        return policy_of(operator)

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(plain, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    replace_in_blocks(change, block, forward)


def is_kept(operator: str) -> bool:
    """Return whether the result of the operator with that qualified name is kept; an overload may follow the name."""
    return operator.partition(".")[0] in _KEPT or operator.startswith(_KEPT_PREFIXES)
