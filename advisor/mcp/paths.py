"""Keep the paths that a client names within the folder that the server was started for."""

from pathlib import Path

from profiler.errors import ProfilerError
from profiler.store import find

MOST_RUNS = 200
DEEPEST = 3
"""Levels of folders below the root that are searched for runs."""


def within(root: Path, given: str) -> Path:
    """Return the path, absolute and with its symbolic links resolved.

    Raises:
        ProfilerError: it is a URL, or outside the root.
    """
    if "://" in given or "\0" in given:
        raise ProfilerError("URLs are not read here.", "Give the path of a local run.")
    try:
        path = (root / given).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ProfilerError(f"The path cannot be resolved: {error}.", "Give the path of a local run.") from error
    if not path.is_relative_to(root):
        raise ProfilerError("The path is outside of this server's root.", f"Give one below {root}.")
    return path


def runs(root: Path) -> list[str]:
    """Return the run folders below the root, relative to it; links are not followed."""
    run_folders, folders = list[str](), [(root, 0)]
    while folders and len(run_folders) < MOST_RUNS:
        folder, depth = folders.pop()
        if any(folder.glob("run-*.db")):
            run_folders.append(str(folder.relative_to(root)))
        elif depth < DEEPEST:
            try:
                subfolders = sorted(
                    child
                    for child in folder.iterdir()
                    if child.is_dir() and not child.is_symlink() and child.name[0] != "."
                )
            except OSError:
                continue
            folders += [(path, depth + 1) for path in subfolders]
    return sorted(run_folders)


def store(root: Path, run: Path, name: str) -> Path:
    """Return the store of that name in the run; without a name, the only one.

    Raises:
        ProfilerError: there is none, or several and no name.
    """
    stores = {path.name: path for path in find(run)}
    if not name and len(stores) == 1:
        (name,) = stores
    if name not in stores:
        names = ", ".join(stores) or "none"
        raise ProfilerError(f"The run has these stores: {names}.", "Name one of them as `store`.")
    return within(root, str(stores[name]))
