"""Activation checkpointing: what a block's backward pass needs is computed again, not kept.

Random numbers are drawn as in the first pass, so that dropout drops the same. What a block counts in its forward pass
is counted twice: running statistics of a batch normalisation in it move on twice a step, which only evaluation sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._blocks import replace_in_blocks


@dataclass(frozen=True)
class Checkpointing:
    """Every `every`-th module of a class named `block`, in the order in which the model has them."""

    block: str
    every: int = 1

    def apply(self, agent: Agent) -> Callable[[], None]:
        """In every model that has such blocks, before it is called: the first step may be the one that does not fit."""
        from torch.utils.checkpoint import checkpoint  # type: ignore[import-not-found,unused-ignore]

        def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
            return checkpoint(plain, *args, use_reentrant=False, **kwargs)

        return replace_in_blocks(agent, self.block, forward, self.every)
