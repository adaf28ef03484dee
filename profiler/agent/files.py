"""Access to small files that works even if the program has replaced `open`, as with `mock.patch("builtins.open")`.

For the same reason the agent takes its other system calls from `posix` and not from `os`.
"""

import errno
import os
import posix
import stat

_READ = os.O_RDONLY | os.O_CLOEXEC


def contents(path: str, size: int = 16384) -> bytes:
    """Return up to `size` bytes of a file that the kernel returns in one read.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        file = posix.open(path, _READ)
    except OSError:
        raise
    except Exception:  # an audit hook of the program forbids it with another exception
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path) from None
    try:
        return posix.read(file, size)
    finally:
        posix.close(file)


def append(path: str, data: bytes, flags: int = 0) -> None:
    """Append to a file in at most one write; `flags` are additional flags for open(), such as O_CREAT.

    The file is not kept open: after the program closes all descriptors, one of its own files may get that number.
    """
    file = posix.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    try:
        if data:  # even an empty write would count as the program's
            posix.write(file, data)
    finally:
        posix.close(file)


def is_folder(path: str) -> bool:
    """Return whether there is a folder at `path`."""
    try:
        return stat.S_ISDIR(posix.stat(path).st_mode)
    except (OSError, ValueError):
        return False
