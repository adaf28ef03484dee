"""Non-blocking copies of pinned tensors to a GPU."""

from typing import Any

from ._modification import Modification


def copy_without_waiting(change: Modification, copied: list[bool]) -> None:
    """Make `Tensor.to` and `Tensor.cuda` of pinned tensors non-blocking.

    A call that passes non_blocking by position is left alone. `copied` is filled by the first copy to a GPU. A copy
    within the host still waits, and a copy from a GPU is unchanged.
    """
    torch = change.torch
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

    for name in ("to", "cuda"):
        change.replace(torch.Tensor, name, copy)
