"""The optimizers of a program, their updates, and the functions that clip gradients before updates."""

import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from ._modification import Modification


class Optimizers:
    """The optimizers made since a change began. Their updates run as `step(plain, optimizer, closure, ...)`.

    `plain()` makes the update with the program's own arguments.
    """

    def __init__(self, change: Modification, step: Callable[..., Any]) -> None:
        self._step = step
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        self._undone = False
        change.replace(change.torch.optim.Optimizer, "_patch_step_function", self._replace_step)
        change.undoing.append(self._undo)

    def with_gradients(self) -> list[Any]:
        """Return the parameters that have gradients."""
        return [parameter for optimizer in self._made for parameter in with_gradients(optimizer)]

    def of(self, parameters: list[Any]) -> list[Any]:
        """Return the optimizers that update at least one of these parameters that has a gradient."""
        ids = {id(parameter) for parameter in parameters}
        return [
            optimizer
            for optimizer in self._made
            if any(id(parameter) in ids for parameter in with_gradients(optimizer))
        ]

    def _replace_step(self, plain: Any, optimizer: Any) -> Any:
        result = plain(optimizer)
        self._made.add(optimizer)

        @functools.wraps(type(optimizer).step)
        def step(this: Any, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
            closure_arguments = () if closure is None else (closure,)
            update = functools.partial(type(this).step, this, *closure_arguments, *args, **kwargs)
            return update() if self._undone else self._step(update, this, closure, *args, **kwargs)

        step._profile_train_change = self  # type: ignore[attr-defined]
        optimizer.__dict__["step"] = types.MethodType(step, optimizer)
        return result

    def _undo(self) -> None:
        """Let the optimizers update by themselves again; a scheduler may have wrapped the replaced `step`."""
        self._undone = True
        for optimizer in self._made:
            if getattr(optimizer.__dict__.get("step"), "_profile_train_change", None) is self:
                del optimizer.__dict__["step"]


def replace_optimizer(change: Modification, name: str, cls: type) -> None:
    """Replace the class `name` of torch.optim with `cls`, which takes the name of its base."""
    plain = getattr(change.torch.optim, name)
    for attribute in ("__name__", "__qualname__", "__module__"):
        setattr(cls, attribute, getattr(cls.__base__, attribute))
    for module in (change.torch.optim, sys.modules[plain.__module__]):
        change.put(module, name, cls)


def with_gradients(optimizer: Any) -> list[Any]:
    """Return the parameters of an optimizer that have gradients."""
    return [
        parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.grad is not None
    ]


def replace_clipping(change: Modification, function: Callable[..., Any]) -> None:
    """Call `function(plain, ...)` in place of each function that clips gradients."""
    for module in (change.torch.nn.utils, change.torch.nn.utils.clip_grad):
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            change.replace(module, name, function)
