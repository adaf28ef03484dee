"""Images and convolutions in the order that tensor cores read: channels last."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent


@dataclass(frozen=True)
class ChannelsLast:
    """Weights and every 4-D input of the models."""

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Every model, once it is known. Numbers stay the same; only where they lie in memory changes."""
        torch = agent.torch
        undo: list[Callable[[], None]] = []

        def act(model: Any) -> None:
            plain = model.forward
            model.to(memory_format=torch.channels_last)

            def turned(value: Any) -> Any:
                if isinstance(value, torch.Tensor) and value.dim() == 4:
                    return value.contiguous(memory_format=torch.channels_last)
                return value

            @functools.wraps(plain)
            def forward(*args: Any, **kwargs: Any) -> Any:
                return plain(*map(turned, args), **{key: turned(value) for key, value in kwargs.items()})

            model.forward = forward

            def back() -> None:
                if model.__dict__.get("forward") is forward:
                    del model.forward
                model.to(memory_format=torch.contiguous_format)

            undo.append(back)

        agent.on_model.append(act)

        def undo_all() -> None:
            for each in undo:
                each()

        return undo_all
