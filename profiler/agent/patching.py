"""Put functions of the agent in the place of others, and take them back."""

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
    """Return the undo function of a patch, for one that undoes itself: another thread may call `ours` at once.

    It leaves an owner alone in which the program has replaced `ours` since. It calls `undone` unless there is such an
    owner: the program may then still call `ours`.
    """

    def undo() -> None:
        held = [owner for owner in owners if getattr(owner, name) is ours]
        for owner in held:
            setattr(owner, name, plain)
        if len(held) == len(owners):
            undone()

    return undo


def taking_out(entry: Any, entries: list[Any]) -> Callable[[], None]:
    """Return the function that takes an entry out of a list, if it is still there."""

    def undo() -> None:
        if entry in entries:
            entries.remove(entry)

    return undo


def each_of(undo: Iterable[Callable[[], None]]) -> Callable[[], None]:
    """Return the function that calls each of `undo`, including those added by then."""

    def undo_all() -> None:
        for one in undo:
            one()

    return undo_all


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
