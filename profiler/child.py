"""Run code of profile-train in a Python process of its own, next to a program."""

import sys
from pathlib import Path


def python(code: str) -> tuple[str, ...]:
    """Return the command that runs `code`, to which its arguments, `sys.argv[1:]`, are appended.

    `-c` puts the current folder first on `sys.path`. A program's own `profiler.py` may lie there: ours takes its place.
    """
    path = "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]"
    return sys.executable, "-c", f"{path}; {code}", str(Path(__file__).parents[1])
