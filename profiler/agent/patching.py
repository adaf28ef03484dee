"""Replace functions with functions of the agent, and restore them."""

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any


def patch(
    name: str, plain: Any, ours: Any, *owners: Any, undone: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """Set `ours` as attribute `name` of each owner; return the undo function."""
    undo = undoing(name, plain, ours, *owners, undone=undone)
    for owner in owners:
        setattr(owner, name, ours)
    return undo


def undoing(
    name: str, plain: Any, ours: Any, *owners: Any, undone: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """Return the undo function of a patch that is not made yet.

    A patch that undoes itself needs it first, because another thread may call `ours` at once. The undo function skips
    owners in which the program has replaced `ours` since. It calls `undone` unless there is such an owner, because the
    program may then still call `ours`.
    """

    def undo() -> None:
        patched_owners = [owner for owner in owners if getattr(owner, name) is ours]
        for owner in patched_owners:
            setattr(owner, name, plain)
        if len(patched_owners) == len(owners):
            undone()

    return undo


def taking_out(entry: Any, entries: list[Any]) -> Callable[[], None]:
    """Return a function that removes an entry from a list, if it is still there."""

    def undo() -> None:
        if entry in entries:
            entries.remove(entry)

    return undo


def each_of(undo: Iterable[Callable[[], None]]) -> Callable[[], None]:
    """Return a function that calls every function in `undo`, including those added before that call."""

    def undo_all() -> None:
        for function in undo:
            function()

    return undo_all


def in_place_of(plain: Any, function: Any) -> Any:
    """Return a callable that runs `function` and passes for `plain`.

    Python binds a function in a class of the program to its instances, but not a built-in function. So the replacement
    of a built-in function is an object that is not bound either. Like both, it is pickled by name.
    """
    if type(plain) is not types.BuiltinFunctionType:
        return function
    members: dict[str, Any] = {
        "__call__": staticmethod(function),
        "__reduce__": lambda self: plain.__qualname__,
        "__repr__": lambda self: repr(plain),
    }
    return functools.update_wrapper(type("builtin_function_or_method", (), members)(), plain)
