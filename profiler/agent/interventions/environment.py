"""Environment variables of the program, which libraries read when they are loaded or first used.

profiler/trial.py sets them before the program starts; this change only checks that they keep their values.
"""

from __future__ import annotations

import os

from ._modification import Modification, NotMade


def apply(change: Modification, variables: dict[str, str | None]) -> None:
    """Check that the variables have these values, now and after the first steps; None means unset.

    A variable that the program changes after importing torch is reported as a problem.

    Raises:
        NotMade: the program changed a variable before it imported torch.
    """
    message = f"The program itself sets {', '.join(variables)}."

    def hold() -> bool:
        return all(os.environ.get(name) == value for name, value in variables.items())

    if not hold():
        raise NotMade(message, "program-does")
    change.expect(message, hold, code="program-does")
