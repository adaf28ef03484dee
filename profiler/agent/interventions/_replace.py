"""Replace a function wherever it is looked up by its name, or the forward pass of one module."""

import functools
import types
from collections.abc import Callable
from typing import Any


def replace_attribute(owner: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Call `function(plain, ...)` in place of `plain(...)`; return the undo function."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return function(plain, *args, **kwargs)

    own = name in vars(owner)
    setattr(owner, name, replaced)

    def undo() -> None:
        if vars(owner).get(name) is replaced:
            if own:
                setattr(owner, name, plain)
            else:
                delattr(owner, name)

    return undo


def replace_forward(module: Any, forward: Callable[..., Any]) -> Callable[[], None]:
    """Call `forward(module, plain, ...)` in place of `plain(...)`; return the undo function.

    The replacement is bound like a method: a copy of the module calls its own plain forward, and a pickle only names
    it.
    """
    before = module.__dict__.get("forward")

    @functools.wraps(type(module).forward)
    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        plain = functools.partial(type(self).forward, self) if before is None else before
        return forward(self, plain, *args, **kwargs)

    method = types.MethodType(replaced, module)
    module.forward = method

    def undo() -> None:
        if module.__dict__.get("forward") is method:
            if before is None:
                del module.forward
            else:
                module.forward = before

    return undo
