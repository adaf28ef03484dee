"""Store images and convolution weights in the layout that tensor cores read: channels last."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..patching import each_of
from ..session import Agent
from ._expected import expect
from ._replace import replace_forward


@dataclass(frozen=True)
class ChannelsLast:
    """The channels-last change: the weights and every 4-D input of the models."""

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Convert every model with 2-D convolutions before its first call.

        Optimizer state then gets the same layout. Values stay the same; only their layout in memory changes.
        """
        torch = agent.torch
        convolutions = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
        undo: list[Callable[[], None]] = []

        def turned(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dim() == 4:
                return value.contiguous(memory_format=torch.channels_last)
            return value

        def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
            return plain(*map(turned, args), **{key: turned(value) for key, value in kwargs.items()})

        def act(model: Any) -> None:
            if not any(isinstance(module, convolutions) for module in model.modules()):
                return
            model.to(memory_format=torch.channels_last)
            back = replace_forward(model, forward)

            def undo_one() -> None:
                back()
                model.to(memory_format=torch.contiguous_format)

            undo.append(undo_one)

        agent.on_call.append(act)
        expect(agent, lambda: undo, "No model has a 2-D convolution.")

        return each_of(undo)
