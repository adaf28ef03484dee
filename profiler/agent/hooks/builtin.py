"""A hook in the place of a built-in function."""

import functools
import types
from typing import Any


def in_place_of(plain: Any, function: Any) -> Any:
    """Return a callable that runs `function` and passes for `plain`.

    A function that a class of the program holds is bound to its instances, a built-in one is not: in its place stands
    an object that is not bound either. It is pickled by name, as both are.
    """
    if type(plain) is not types.BuiltinFunctionType:
        return function
    members: dict[str, Any] = {
        "__call__": staticmethod(function),
        "__reduce__": lambda self: plain.__qualname__,
        "__repr__": lambda self: repr(plain),
    }
    return functools.update_wrapper(type("builtin_function_or_method", (), members)(), plain)
