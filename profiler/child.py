"""Processes of profile-train next to a program, and the environment of processes that this one starts."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def python(code: str) -> tuple[str, ...]:
    """Return the command that runs `code`; append its arguments, which it gets as `sys.argv[1:]`.

    `-c` puts the current folder first on `sys.path`. It may contain the program's own `profiler.py`, so our folder
    replaces it.
    """
    path = "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]"
    return sys.executable, "-c", f"{path}; {code}", str(Path(__file__).parents[1])


def set_variables(wanted: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """Set the variables in this process, for processes that it starts; None removes one. Return the old values."""
    old_values = {name: os.environ.get(name) for name in wanted}
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return old_values
