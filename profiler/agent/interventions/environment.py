"""Environment variables of the program, which libraries read when they are loaded or first used.

profiler/trial.py sets them before the program starts; this change only checks that they keep their values.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ..session import Agent
from ._expected import NotMade, expect


@dataclass(frozen=True)
class Environment:
    """The environment change; None marks a variable that must not be set."""

    variables: dict[str, str | None]

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Check that the variables have their values, now and after the first steps.

        A variable that the program changes after importing torch is reported as a problem.

        Raises:
            NotMade: the program changed one before it imported torch.
        """
        otherwise = f"The program itself sets what is to be changed of {', '.join(self.variables)}."
        if not self._holds():
            raise NotMade(otherwise, "program-does")
        expect(agent, self._holds, otherwise, code="program-does")
        return lambda: None

    def _holds(self) -> bool:
        return all(os.environ.get(name) == value for name, value in self.variables.items())
