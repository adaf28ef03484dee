"""Evaluation without gradients: models that are in eval mode compute under `torch.no_grad`.

Not under `torch.inference_mode`: what a model keeps of an evaluation, as a cache of its own, would end the program when
a backward pass needs it.

That no backward pass will come cannot be known beforehand. So what they return requires gradients as before, but holds
no activations; a backward pass that reaches it finds nothing behind it, and is told. Left alone are a model whose
inputs require gradients, as a network that only judges what another one makes, and containers of other kinds than
lists, tuples and dictionaries, whose tensors then require none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._expected import expect
from ._forward import replace_forward
from ._tensors import replaced, tensors


@dataclass(frozen=True)
class Evaluation:
    """Of every model, once it is known."""

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Forward passes with gradients enabled, in eval mode."""
        torch = agent.torch
        changed: list[bool] = []
        undo: list[Callable[[], None]] = []
        anchor = torch.empty(0, requires_grad=True)

        class Needless(torch.autograd.Function):  # type: ignore[misc,name-defined,unused-ignore]
            """Requires gradients, and has none."""

            @staticmethod
            def forward(context: Any, anchor: Any, tensor: Any) -> Any:
                return tensor.detach()

            @staticmethod
            def backward(context: Any, gradient: Any) -> Any:
                agent.problem("trial", RuntimeError("A backward pass needs what a model computed in eval mode."))
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

        agent.on_model.append(lambda model: undo.append(replace_forward(model, forward)))
        expect(agent, lambda: changed, "No model computed in eval mode with gradients enabled.", by_the_end=True)

        def undo_all() -> None:
            for each in undo:
                each()

        return undo_all


def _is_left_alone(torch: Any, module: Any, inputs: Any) -> bool:
    if any(tensor.requires_grad for tensor in tensors(torch, inputs)):
        return True
    return not any(parameter.requires_grad for parameter in module.parameters())
