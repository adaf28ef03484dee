"""The changes that a trial makes to the program from outside: one module per change.

Each change is a dataclass with its settings as fields, named as its module: `ddp_hook.DdpHook`. Its `apply(agent)`
makes the change and returns the function that undoes it. A change that cannot be made raises, and the trial fails,
because measuring the unchanged program instead would give a false result. Problems that a change finds later are
reported as problems of the trial. Modules whose names begin with an underscore hold code that changes share.
"""

import importlib
from collections.abc import Callable
from typing import Any

from ..session import Agent


def apply(agent: Agent, name: str, settings: dict[str, Any]) -> Callable[[], None]:
    """Apply the change of that name; return the function that undoes it.

    Raises:
        Exception: anything that keeps the change from being made.
    """
    undo: Callable[[], None] = change_of(name, settings).apply(agent)
    return undo


def change_of(name: str, settings: dict[str, Any]) -> Any:
    """Return the change in the module of that name."""
    module = importlib.import_module(f"{__name__}.{name}")
    return getattr(module, "".join(map(str.capitalize, name.split("_"))))(**settings)
