"""Variables of the program's environment, which libraries read as they are loaded or first used.

profiler/trial.py sets them before the program starts; here is only seen to it that they are still what they should be.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ..session import Agent
from ._expected import expect


@dataclass(frozen=True)
class Environment:
    """None for a variable that is not to be there."""

    variables: dict[str, str | None]

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Raises if the program has set one otherwise before it imported torch; one that it sets later is told."""
        otherwise = f"The program itself sets what is to be changed of {', '.join(self.variables)}."
        if not self._holds():
            raise RuntimeError(otherwise)
        expect(agent, self._holds, otherwise)
        return lambda: None

    def _holds(self) -> bool:
        return all(os.environ.get(name) == value for name, value in self.variables.items())
