"""Mixed precision: the models' forward passes under autocast, with what they return in float32 again.

The loss is then computed in float32, which autocast would do for most losses anyway. Without a GradScaler: float16 is
for a look at speed and memory, and for losses that do not underflow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent


@dataclass(frozen=True)
class Autocast:
    """`dtype` is "bfloat16" or "float16"."""

    dtype: str

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Every model, once it is known."""
        torch, dtype = agent.torch, getattr(agent.torch, self.dtype)
        undo: list[Callable[[], None]] = []

        def act(model: Any) -> None:
            plain = model.forward
            device = next(model.parameters()).device.type

            @functools.wraps(plain)
            def forward(*args: Any, **kwargs: Any) -> Any:
                with torch.autocast(device, dtype):
                    result = plain(*args, **kwargs)
                return _in_float32(torch, result)

            model.forward = forward

            def back() -> None:
                if model.__dict__.get("forward") is forward:
                    del model.forward

            undo.append(back)

        agent.on_model.append(act)

        def undo_all() -> None:
            for each in undo:
                each()

        return undo_all


def _in_float32(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, dict):  # a ModelOutput is one, too, and is made from its fields
        return type(value)(**{key: _in_float32(torch, each) for key, each in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_in_float32(torch, each) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_in_float32(torch, each) for each in value)
    return value
