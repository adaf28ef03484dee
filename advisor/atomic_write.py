"""Write files whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiler import ours
from profiler.errors import ProfilerError

OURS_ALONE = 0o600
"""File mode: a recording reveals paths, arguments and the machine, so sharing it is left to the user."""


@contextmanager
def whole(path: Path, mode: int = OURS_ALONE) -> Iterator[Path]:
    """Yield a temporary path next to `path`, and move it over `path` at the end, or delete it on failure.

    Raises:
        ProfilerError: the file could not be written.
    """
    temporary = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
        temporary = Path(name)
        yield temporary
        temporary.chmod(mode)
        os.replace(temporary, path)
    except OSError as error:
        raise ProfilerError(
            f"{path} could not be written: {error.strerror or error}.",
            "Free disk space, or put it elsewhere with --out.",
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write(path: Path, content: str | bytes, mode: int = OURS_ALONE) -> None:
    """Write a file; text as UTF-8.

    Raises:
        ProfilerError: the file could not be written.
    """
    with whole(path, mode) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def keep(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file into a folder that may hold the user's files, and return its path.

    If a file of that name is not profile-train's own, it gets another name.

    Raises:
        ProfilerError: the file could not be written.
    """
    path = ours.free(folder, name)
    write(path, content)
    ours.add(path)
    return path
