"""Mixed precision: run forward passes under autocast and convert the outputs back to float32.

The loss is then computed in float32, which autocast would do for most losses anyway. No GradScaler is added; for
float16 training, see fp16_autocast.
"""

from typing import Any

from ._modification import Modification
from ._tensors import replaced


def apply(change: Modification, dtype: str) -> None:
    """Change every model before its first call: the first step may be the one that does not fit in memory.

    `dtype` is "bfloat16" or "float16".
    """
    torch, low_precision = change.torch, getattr(change.torch, dtype)

    def in_float32(tensor: Any) -> Any:
        return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor

    def forward(module: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(next(module.parameters()).device.type, low_precision):
            result = plain(*args, **kwargs)
        return replaced(torch, result, in_float32)

    change.agent.on_call.append(lambda model: change.replace_forward(model, forward))
    change.expect("No model was found.")
