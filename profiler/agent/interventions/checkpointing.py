"""Activation checkpointing: recompute what a block's backward pass needs instead of keeping it.

Random numbers are drawn as in the first pass, so dropout drops the same elements. Whatever a block counts in its
forward pass is counted twice: running statistics of a batch normalization in it advance twice per step, which only
evaluation sees.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._blocks import replace_in_blocks


@dataclass(frozen=True)
class Checkpointing:
    """The checkpointing change: every `every`-th module of a class named `block`, in the model's order."""

    block: str
    every: int = 1

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Change every model with such blocks before its first call.

        The first step may be the one that does not fit in memory.
        """
        from torch.utils.checkpoint import checkpoint  # type: ignore[import-not-found,unused-ignore]

        def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
            return checkpoint(plain, *args, use_reentrant=False, **kwargs)

        return replace_in_blocks(agent, self.block, forward, self.every)
