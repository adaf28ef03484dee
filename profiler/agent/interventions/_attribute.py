"""Replace a function wherever it is looked up by its name."""

import functools
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
