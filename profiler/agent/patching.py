"""Put functions of the agent in the place of others, and take them back."""

from collections.abc import Callable, Iterable
from typing import Any


def patch(
    name: str, plain: Any, ours: Any, *owners: Any, undone: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """Set `ours` as attribute `name` of each owner; return the undo function.

    It leaves an owner alone in which the program has replaced `ours` since. It calls `undone` unless there is such an
    owner: the program may then still call `ours`.
    """
    for owner in owners:
        setattr(owner, name, ours)

    def undo() -> None:
        held = [owner for owner in owners if getattr(owner, name) is ours]
        for owner in held:
            setattr(owner, name, plain)
        if len(held) == len(owners):
            undone()

    return undo


def each_of(undo: Iterable[Callable[[], None]]) -> Callable[[], None]:
    """Return the function that calls each of `undo`, including those added by then."""

    def undo_all() -> None:
        for one in undo:
            one()

    return undo_all
