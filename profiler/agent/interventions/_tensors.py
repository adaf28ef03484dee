"""The tensors in a batch, and in the inputs or outputs of a forward pass."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def replaced(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same containers with each tensor changed and everything else kept."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) is dict:
        return {key: replaced(torch, item, change) for key, item in value.items()}
    if isinstance(value, dict):  # such as a ModelOutput, which is made from its fields
        return type(value)(**{key: replaced(torch, item, change) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(replaced(torch, item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(replaced(torch, item, change) for item in value)
    return value


def tensors(torch: Any, value: Any) -> Iterator[Any]:
    """Yield each tensor in the containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors(torch, item)
