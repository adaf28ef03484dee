"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiler.errors import ProfilerError

OURS_ALONE = 0o600
"""A recording tells paths, arguments and the machine, so sharing it is left to the user."""


@contextmanager
def whole(path: Path, mode: int = OURS_ALONE) -> Iterator[Path]:
    """Where to write it: beside its place, to be moved over it in the end, or away if that fails.

    Raises:
        ProfilerError: it could not be written.
    """
    beside = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
        beside = Path(name)
        yield beside
        beside.chmod(mode)
        os.replace(beside, path)
    except OSError as error:
        raise ProfilerError(
            f"{path} could not be written: {error.strerror or error}.", "Make room, or put it elsewhere with --out."
        ) from error
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)
