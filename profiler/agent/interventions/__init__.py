"""The changes that a trial makes to the program from outside: one module per change.

The `apply` function of each module receives the `Modification` with which to make the change, and the settings of the
change. A change that cannot be made raises, and the trial fails, because measuring the unchanged program instead would
give a false result. Problems that a change finds later are reported as problems of the trial. Modules whose names begin
with an underscore hold code that changes share.
"""

import importlib
from collections.abc import Callable
from typing import Any

from ..session import Agent
from ._modification import Modification


def apply(agent: Agent, name: str, settings: dict[str, Any]) -> Callable[[], None]:
    """Apply the change of that name; return the function that undoes it.

    Raises:
        Exception: anything that keeps the change from being made.
    """
    change = Modification(agent)
    change_of(name)(change, **settings)
    return change.undo


def change_of(name: str) -> Callable[..., None]:
    """Return the function that makes the change of that name."""
    change: Callable[..., None] = importlib.import_module(f"{__name__}.{name}").apply
    return change
