"""Read lines of the program's source, as they were when it ran."""

import os
import stat
from pathlib import Path, PurePath

from profiler.agent.redact import redact_text

MOST_BYTES = 1 << 20
"""Maximum bytes of a file to read."""


def is_cell(path: str) -> bool:
    """Return whether this is a name under which ipykernel compiles a notebook cell; it does not show which cell."""
    return PurePath(path).parent.name.startswith("ipykernel_")


def source(path: str, since: float) -> list[str] | None:
    """Return a Python file's lines without secrets; None if it has changed since that Unix time, or cannot be read."""
    lines = to_parse(path, since)
    return None if lines is None else [redact_text(line) for line in lines]


def to_parse(path: str, since: float) -> list[str] | None:
    """Return the same lines with their secrets, only for parsing: redacted lines may not be valid Python.

    A run may come from anybody, so it may name any file: only Python source is read.
    """
    try:
        status = os.lstat(path)
        if (
            not path.endswith(".py")
            or not stat.S_ISREG(status.st_mode)
            or status.st_size > MOST_BYTES
            or status.st_mtime > since
        ):
            return None
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
