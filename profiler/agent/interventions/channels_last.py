"""Store images and convolution weights in the layout that tensor cores read: channels last."""

from typing import Any

from ._modification import Modification


def apply(change: Modification) -> None:
    """Convert every model with 2-D convolutions before its first call, and each of its 4-D inputs.

    Optimizer state then gets the same layout. Values stay the same; only their layout in memory changes.
    """
    torch = change.torch
    convolutions = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)

    def turned(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=torch.channels_last)
        return value

    def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(*map(turned, args), **{key: turned(value) for key, value in kwargs.items()})

    def act(model: Any) -> None:
        if any(isinstance(module, convolutions) for module in model.modules()):
            model.to(memory_format=torch.channels_last)
            change.replace_forward(model, forward)
            change.undoing.append(lambda: model.to(memory_format=torch.contiguous_format))

    change.agent.on_call.append(act)
    change.expect("No model has a 2-D convolution.")
