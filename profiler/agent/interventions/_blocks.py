"""The repeated modules that a change is made to."""

from __future__ import annotations

from typing import Any

from ..facts import written


def blocks(model: Any, name: str) -> list[Any]:
    """Those of a class of that name, in the order in which the model has them."""
    return [module for module in model.modules() if written(module).__name__ == name]
