"""Create files and folders that are private from the first moment.

That holds for any umask, and even if others may write into the parent folder: they are newly created, and an existing
file or link is never opened or followed.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write a file of mode 0600; an existing one is removed first."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with open(path, "x", encoding="utf-8", opener=for_us_alone) as file:
        file.write(text)


def make_parents(path: Path, mode: int = 0o755) -> None:
    """Create the missing folders above `path`, not writable by others."""
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(mode=mode, exist_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder of mode 0700, or accept an existing one that is private to this user.

    Raises:
        OSError: it cannot be created, or exists and is not private.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not is_ours_alone(path):
            raise PermissionError(errno.EPERM, "It exists already, and other users can access it", str(path)) from None


def is_ours_alone(folder: Path) -> bool:
    """Return whether it is a folder of this user, not a link, that nobody else can access."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def is_ours(folder: Path) -> bool:
    """Return whether a folder belongs to this user."""
    return folder.stat().st_uid == os.geteuid()


def for_us_alone(path: str, flags: int) -> int:
    """Open a file with mode 0600 without following links; an opener for `open`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
