"""Fused optimizers: one kernel for all parameters instead of several for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._expected import expect


@dataclass(frozen=True)
class FusedOptimizer:
    """The fused-optimizer change for optimizers of class `name` that have a fused form.

    It is made before their first step.
    """

    name: str

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Change every such optimizer that has taken no step. Its state is created from what its groups say then."""
        from torch.optim.optimizer import register_optimizer_step_pre_hook  # type: ignore[import-not-found,unused-ignore]

        changed: list[Any] = []

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if type(optimizer).__name__ != self.name or optimizer.state or optimizer in changed:
                return
            if not all("fused" in group for group in optimizer.param_groups):
                return
            for group in optimizer.param_groups:
                group.update(fused=True, foreach=False)
            optimizer._step_supports_amp_scaling = True  # as its own constructor says, for a GradScaler
            changed.append(optimizer)

        handle = register_optimizer_step_pre_hook(before)
        expect(agent, lambda: changed, f"No {self.name} that has a fused form was found before its first step.")
        undo: Callable[[], None] = handle.remove
        return undo
