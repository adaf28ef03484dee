"""Non-blocking copies of pinned tensors to a GPU."""

from collections.abc import Callable
from typing import Any

from ..dynamo import not_for_dynamo
from ..patching import each_of
from ..session import Agent
from ._replace import replace_attribute


def without_waiting(agent: Agent, copied: list[bool]) -> Callable[[], None]:
    """Make `Tensor.to` and `Tensor.cuda` of pinned tensors non-blocking; return the undo function.

    A call that passes non_blocking by position is left alone. `copied` is filled by the first copy to a GPU. A copy
    within the host still waits, and a copy from a GPU is unchanged.
    """
    torch = agent.torch
    is_compiling, is_initialized = torch.compiler.is_compiling, torch.cuda.is_initialized

    def copy(plain: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        # Without CUDA, and in a forked worker, nothing is pinned: there, to ask would be an error.
        if is_compiling() or tensor.device.type != "cpu" or not is_initialized():
            return plain(tensor, *args, **kwargs)
        if bool in map(type, args) or not tensor.is_pinned():
            return plain(tensor, *args, **kwargs)
        result = plain(tensor, *args, **{**kwargs, "non_blocking": True})
        if result.device.type != "cpu":
            copied[:] = [True]
        return result

    not_for_dynamo(torch, copy)
    return each_of([replace_attribute(torch.Tensor, name, copy) for name in ("to", "cuda")])
