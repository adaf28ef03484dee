"""Read where the program comes from: the user, the repository and its commit.

Only variables and small regular files are read. No process is started and no directory service is queried, because
either could hang.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 4 * 2**20
"""Maximum bytes to read of one Git file: `packed-refs` has a line per tag."""

HEIGHT = 40
"""Maximum folders to search for a repository, from the script's folder upward."""

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE = re.compile(r"ref: (refs/[^\s\0]+)\s*")


class Origin(NamedTuple):
    """The origin of a program; a field is None if it is unknown."""

    user: str | None = None
    project: str | None = None
    commit: str | None = None


def origin(command: Sequence[str], cwd: str, environment: Mapping[str, str]) -> Origin:
    """Return the user, the name of the repository that holds the script, and the commit that is checked out there."""
    user = next((environment[name] for name in ("LOGNAME", "USER") if environment.get(name)), None)
    script = next((word for word in command if word.endswith(".py")), "")
    folder = Path(cwd, script).parent if script else Path(cwd)
    for place in (folder, *folder.parents)[:HEIGHT]:
        git = place / ".git"
        if git.is_dir():
            return Origin(user, place.resolve().name, _commit(git))
        if git.is_file():  # a worktree or a submodule: the file names the folder
            git_folder = place / _text(git).removeprefix("gitdir:").strip()
            return Origin(user, place.resolve().name, _commit(git_folder))
    return Origin(user)


def _commit(git: Path) -> str | None:
    """Return the commit that a .git folder has checked out."""
    head = _text(git / "HEAD")
    reference = _REFERENCE.fullmatch(head)
    if reference is None:
        return _checked(head)
    common = git / (_text(git / "commondir").strip() or ".")  # in a worktree
    commit = _checked(_text(common / reference[1])) if ".." not in reference[1] else None
    if commit:
        return commit
    lines = _text(common / "packed-refs").splitlines()
    return next((_checked(line.partition(" ")[0]) for line in lines if line.endswith(f" {reference[1]}")), None)


def _checked(text: str) -> str | None:
    match = _COMMIT.fullmatch(text.strip())
    return match[0] if match else None


def _text(path: Path) -> str:
    """Return the text of a regular file; "" for anything else. A pipe at that path does not block."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(MOST_BYTES).decode(errors="replace") if is_regular else ""
    except (OSError, ValueError):
        return ""
