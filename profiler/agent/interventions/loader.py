"""Change DataLoader arguments (workers, prefetching, pinned memory) and make copies non-blocking."""

from __future__ import annotations

import inspect
from typing import Any

from ..importing import when_imported
from ..stack import place
from ._modification import Modification

# Arguments that DataLoader rejects without workers.
_OF_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")


def apply(
    change: Modification,
    file: str,
    line: int,
    num_workers: int | None = None,
    prefetch_factor: int | None = None,
    persistent_workers: bool | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
) -> None:
    """Change every loader that is made from now on at that line of the program; None leaves an argument as it is.

    With `non_blocking`, copies of pinned batches to a GPU are non-blocking, for any loader.
    """
    arguments = {
        "num_workers": num_workers,
        "prefetch_factor": prefetch_factor,
        "persistent_workers": persistent_workers,
        "pin_memory": pin_memory,
    }
    overrides = {name: value for name, value in arguments.items() if value is not None}

    def made(plain: Any, *args: Any, **kwargs: Any) -> None:
        origin = place()
        if origin is None or (origin["file"], origin["line"]) != (file, line):
            plain(*args, **kwargs)
            return
        bound = inspect.signature(plain).bind(*args, **kwargs)
        change.made = True
        bound.arguments.update(overrides)
        if not bound.arguments.get("num_workers"):
            for name in _OF_WORKERS:
                bound.arguments.pop(name, None)
        plain(*bound.args, **bound.kwargs)

    def watch() -> None:
        change.replace(change.torch.utils.data.DataLoader, "__init__", made)

    when_imported("torch.utils.data.dataloader", watch)
    change.expect(f"No DataLoader was created at {file}:{line}.")
    if non_blocking:
        copied: list[bool] = []
        copy_without_waiting(change, copied)
        change.expect("No pinned batch was copied to a GPU with `.to()` or `.cuda()`.", lambda: copied)


def copy_without_waiting(change: Modification, copied: list[bool]) -> None:
    """Make `Tensor.to` and `Tensor.cuda` of pinned tensors non-blocking.

    A call that passes non_blocking by position is left alone. `copied` is filled by the first copy to a GPU. A copy
    within the host still waits, and a copy from a GPU is unchanged.
    """
    torch = change.torch
    is_compiling, is_initialized = torch.compiler.is_compiling, torch.cuda.is_initialized

    def copy(plain: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        # Without CUDA, and in a forked worker, nothing is pinned, and `is_pinned` would raise an error.
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
