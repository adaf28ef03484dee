"""Activation checkpointing: recompute what a block's backward pass needs instead of keeping it.

Random numbers are drawn as in the first pass, so dropout drops the same elements. Anything that a block counts in its
forward pass is counted twice: running statistics of batch normalization advance twice per step, which affects only
evaluation.
"""

from typing import Any

from ._blocks import replace_in_blocks
from ._modification import Modification


def apply(change: Modification, block: str, every: int = 1) -> None:
    """Change every `every`-th module of a class named `block`, in the model's order."""
    from torch.utils.checkpoint import checkpoint  # type: ignore[import-not-found,unused-ignore]

    def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(plain, *args, use_reentrant=False, **kwargs)

    replace_in_blocks(change, block, forward, every)
