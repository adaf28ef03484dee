"""Files and folders that are nobody else's from their first moment, whatever the umask says and whoever else may write
in the folder around them: they are made anew, never followed or opened where something stands already.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path


def write(path: Path, text: str) -> None:
    """A file of mode 0600; what stood there before is removed first."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with open(path, "x", encoding="utf-8", opener=for_us_alone) as file:
        file.write(text)


def make_parents(path: Path, mode: int = 0o755) -> None:
    """The folders that are missing above `path`, for nobody else to write into."""
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(mode=mode, exist_ok=True)


def make_folder(path: Path) -> None:
    """A folder of mode 0700, or the one that is there already and is ours alone; else an OSError."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not is_ours_alone(path):
            raise PermissionError(errno.EPERM, "It is there already, and not for us alone", str(path)) from None


def is_ours_alone(folder: Path) -> bool:
    """It is a folder, no link to one, which is ours and which nobody else can look into."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def is_ours(folder: Path) -> bool:
    """It belongs to this user."""
    return folder.stat().st_uid == os.geteuid()


def for_us_alone(path: str, flags: int) -> int:
    """An opener: mode 0600, no link followed."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
