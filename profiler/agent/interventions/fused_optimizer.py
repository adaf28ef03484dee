"""Fused optimizers: one kernel for all parameters instead of several for each."""

from typing import Any

from ._modification import Modification


def apply(change: Modification, name: str) -> None:
    """Change every optimizer of class `name` that has a fused form, before its first step.

    Its state is created from the settings that its groups hold then.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook  # type: ignore[import-not-found,unused-ignore]

    changed_optimizers: list[Any] = []

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if type(optimizer).__name__ != name or optimizer.state or optimizer in changed_optimizers:
            return
        if not all("fused" in group for group in optimizer.param_groups):
            return
        for group in optimizer.param_groups:
            group.update(fused=True, foreach=False)
        optimizer._step_supports_amp_scaling = True  # as its own constructor sets it, for a GradScaler
        changed_optimizers.append(optimizer)

    change.undoing.append(register_optimizer_step_pre_hook(before).remove)
    change.expect(f"No {name} with a fused implementation was found before its first step.", lambda: changed_optimizers)
