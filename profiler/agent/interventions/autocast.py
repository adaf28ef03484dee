"""Mixed precision: run forward passes under autocast and convert the outputs back to float32.

The loss is then computed in float32, which autocast would do for most losses anyway. No GradScaler is added; for
float16 training, see fp16_autocast.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..patching import each_of
from ..session import Agent
from ._expected import expect
from ._replace import replace_forward
from ._tensors import replaced


@dataclass(frozen=True)
class Autocast:
    """The autocast change; `dtype` is "bfloat16" or "float16"."""

    dtype: str

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Change every model before its first call: the first step may be the one that does not fit in memory."""
        torch, dtype = agent.torch, getattr(agent.torch, self.dtype)
        undo: list[Callable[[], None]] = []

        def in_float32(tensor: Any) -> Any:
            return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor

        def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
            with torch.autocast(next(module.parameters()).device.type, dtype):
                result = plain(*args, **kwargs)
            return replaced(torch, result, in_float32)

        agent.on_call.append(lambda model: undo.append(replace_forward(model, forward)))
        expect(agent, lambda: undo, "No model was found.")
        return each_of(undo)
