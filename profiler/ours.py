"""Find the files in a folder that profile-train may replace: listed files that still hold what it wrote.

The folder that `--out` names may hold the user's files, before the run or after it. A file of profile-train is listed
in LIST with the SHA-256 of its content. A file that is not listed, or was edited since, is never replaced or moved.
"""

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from profiler.private import for_us_alone

LIST = ".profile-train.json"


def listed(folder: Path, name: str) -> Path | None:
    """Return profile-train's file of that name, possibly under an alternative name; None if there is none."""
    digests = _listed(folder)
    names = (candidate for candidate in islice(_names(name), len(digests) + 2) if candidate in digests)
    return next((folder / candidate for candidate in names if digests[candidate] == _digest(folder / candidate)), None)


def where(folder: Path, name: str) -> Path:
    """Return the path of profile-train's file of that name; the plain path if none is listed."""
    return listed(folder, name) or folder / name


def free(folder: Path, name: str) -> Path:
    """Return the path to write a file of that name to: profile-train's own file, or an unused name."""
    paths = (folder / candidate for candidate in _names(name) if not os.path.lexists(folder / candidate))
    return listed(folder, name) or next(paths)


def add(path: Path) -> None:
    """List a file that was just written.

    If the list cannot be written, such as on a full disk, the file counts as the user's.
    """
    digests = {**_listed(path.parent), path.name: _digest(path)}
    with contextlib.suppress(OSError), open(path.parent / LIST, "w", encoding="utf-8", opener=for_us_alone) as file:
        json.dump(digests, file)


def unchanged(folder: Path) -> list[Path]:
    """Return the listed files that still hold what profile-train wrote."""
    return [folder / name for name, digest in _listed(folder).items() if digest == _digest(folder / name)]


def _names(name: str) -> Iterator[str]:
    yield name
    yield f"profile-train-{name}"
    yield from (f"profile-train-{number}-{name}" for number in count(2))


def _listed(folder: Path) -> dict[str, str]:
    """Return the listed digests by name; names with a path are ignored, because the folder may come from anyone."""
    try:
        digests = json.loads((folder / LIST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(digests, dict):
        return {}
    return {name: digest for name, digest in digests.items() if os.path.basename(name) == name and type(digest) is str}


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of a plain file; None for anything else."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(path.lstat().st_mode) else None
    except OSError:
        return None
