"""Decide whether to trust a file that was not named on the command line.

Settings follow Git's rule for repositories (safe.directory, CVE-2022-24765): the file and its folder belong to the
user or to root. Code follows OpenSSH's rule for its own files (StrictModes, with Debian's exception for user private
groups): in addition nobody else may write there, neither everybody nor a group with other members. A lab's folder with
group write (setgid) is therefore trusted for settings, but not for code.
"""

import os
import stat
from pathlib import Path


def doubt(path: Path, *, code: bool = False) -> str | None:
    """Return why a file, or a folder with everything in it, is not trusted; None if it is.

    `code` means that it will be run.

    Raises:
        OSError: it cannot be examined.
    """
    path = path.resolve()
    contents = [Path(base) / name for base, folders, files in os.walk(path) for name in (*folders, *files)]
    for entry in (path.parent, path, *(contents if code else ())):
        status = entry.stat()
        if status.st_uid not in (os.geteuid(), 0):
            return f"{entry} belongs to another user"
        if entry == path.parent and status.st_mode & stat.S_ISVTX:
            continue  # others cannot replace our files in it
        if status.st_mode & stat.S_IWOTH:
            return f"everybody can write into {entry}"
        if code and status.st_mode & stat.S_IWGRP and not _is_our_own(status.st_gid):
            return f"the group of {entry} can write into it"
    return None


def _is_our_own(group: int) -> bool:
    """Return whether nobody else is in the group, as in a user private group; root's group counts as root."""
    import grp
    import pwd

    if group == 0:
        return True
    try:
        user, group_entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and group_entry.gr_name == user.pw_name and set(group_entry.gr_mem) <= {user.pw_name}
