"""Let no module of the program take the place of ours: PYTHONPATH is meant for the program."""

import contextlib
import os
import sys


def prefer_ours() -> None:
    """Move what PYTHONPATH names to the end of `sys.path`, where ours may still be found."""
    given = os.environ.get("PYTHONPATH")
    if not given:
        return
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    theirs = {os.path.normpath(entry) for entry in given.split(os.pathsep)}
    with contextlib.suppress(OSError):  # the current folder is gone, and nothing is found relative to it
        theirs |= {os.path.abspath(entry) for entry in theirs}
    last = [entry for entry in sys.path[1:] if os.path.normpath(entry) in theirs]  # the first is our script's folder
    sys.path[1:] = [entry for entry in sys.path[1:] if entry not in last] + sorted(last, key=root.__ne__)
