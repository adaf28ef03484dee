"""Evaluation without gradients: run models in eval mode under `torch.no_grad`.

`torch.inference_mode` is not used: anything a model keeps from an evaluation, such as a cache, would end the program
when a backward pass needs it.

Whether a backward pass will come cannot be known beforehand. So the outputs require gradients as before but hold no
activations; a backward pass that reaches them finds nothing behind them and is reported.

Models whose inputs require gradients, such as a network that judges another network's output, are left alone, and so
are models without trainable parameters. Containers other than lists, tuples and dictionaries are left alone, too; their
tensors then require no gradients.
"""

from typing import Any

from ._modification import Modification
from ._tensors import replaced, tensors


def apply(change: Modification) -> None:
    """Change the forward passes of every known model that are made in eval mode with gradients enabled."""
    torch = change.torch
    changed: list[bool] = []
    anchor = torch.empty(0, requires_grad=True)

    class Needless(torch.autograd.Function):  # type: ignore[misc,name-defined,unused-ignore]
        """A function whose output requires gradients but passes none on."""

        @staticmethod
        def forward(context: Any, anchor: Any, tensor: Any) -> Any:
            return tensor.detach()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            change.fail("A backward pass needs activations that a model computed in eval mode.")
            return None, None

    def with_nothing_behind(tensor: Any) -> Any:
        return Needless.apply(anchor, tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor

    def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
        if module.training or not torch.is_grad_enabled() or _is_left_alone(torch, module, (args, kwargs)):
            return plain(*args, **kwargs)
        changed[:] = [True]
        with torch.no_grad():
            result = plain(*args, **kwargs)
        return replaced(torch, result, with_nothing_behind)

    change.agent.on_model.append(lambda model: change.replace_forward(model, forward))
    message = "No model ran in eval mode with gradients enabled."
    change.expect(message, lambda: changed, by_the_end=True)


def _is_left_alone(torch: Any, module: Any, inputs: Any) -> bool:
    if any(tensor.requires_grad for tensor in tensors(torch, inputs)):
        return True
    return not any(parameter.requires_grad for parameter in module.parameters())
