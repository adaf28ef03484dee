"""Find run folders and fetch their files: on this machine, or wherever fsspec reaches (s3://, gs://, ...)."""

import fnmatch
import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.errors import ProfilerError

STORES = ".db"
PATTERNS = ("result.json", "run-*.db")
PROTOCOLS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
"""The package that a protocol of fsspec needs."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of a run folder, not yet read."""

    place: str
    name: str
    size: int
    stamp: str
    """A value that changes when the file does."""


def is_url(place: str) -> bool:
    """Return whether the place is reached with fsspec."""
    return "://" in place


def find(place: str) -> Iterator[str]:
    """Yield the run folders in a folder, itself included. Links are not followed, and run folders are not searched."""
    if is_url(place):
        yield from _find_remote(place)
        return
    if not os.path.isdir(place):
        raise ProfilerError(f"There is no folder {place}.", "Give a folder of runs, or a URL such as s3://bucket/runs.")
    stack = [os.path.abspath(place)]
    while stack:
        folder = stack.pop()
        try:
            with os.scandir(folder) as entries:
                children = list(entries)
        except OSError:  # another user's private folder
            continue
        if any(_is_ours(entry.name) for entry in children):
            yield folder
            continue
        subfolders = (entry for entry in children if entry.is_dir(follow_symlinks=False))
        stack += sorted((entry.path for entry in subfolders), reverse=True)


def _find_remote(place: str) -> Iterator[str]:
    filesystem, path = _remote(place)
    try:
        if not filesystem.isdir(path):
            raise FileNotFoundError(path)
        for folder, subfolders, files in filesystem.walk(path):
            if any(_is_ours(name) for name in files):
                subfolders.clear()
                yield filesystem.unstrip_protocol(folder)
    except Exception as error:  # each store raises its own errors
        raise ProfilerError(
            f"{place} cannot be read ({type(error).__name__}: {error}).", "Check the address and your access to it."
        ) from error


def listing(folder: str) -> list[RunFile]:
    """Return the files that a run folder is read from, by name."""
    if is_url(folder):
        filesystem, path = _remote(folder)
        rows = (row for row in filesystem.ls(path, detail=True) if row["type"] == "file")
        run_files = [_listed(filesystem, row) for row in rows if _is_ours(posixpath.basename(row["name"]))]
    else:
        with os.scandir(folder) as entries:
            run_files = [_local(entry) for entry in entries if _is_ours(entry.name)]
    return sorted(run_files, key=lambda file: file.name)


def fetch(file: RunFile, most: int, scratch: Path) -> Path:
    """Return a path at which the file can be read; for a URL, the path of a copy in `scratch`.

    Raises:
        ProfilerError: it is too large, or not a regular file.
    """
    if file.size > most:
        raise ProfilerError(f"{file.name} is too large: {file.size:,} bytes (limit: {most:,}).", "")
    if not is_url(file.place):
        if not stat.S_ISREG(os.lstat(file.place).st_mode):
            raise ProfilerError(f"{file.name} is a link or a device: it is not followed.", "")
        return Path(file.place)
    filesystem, path = _remote(file.place)
    copy = scratch / file.name
    copy.write_bytes(filesystem.read_block(path, 0, most))
    return copy


def _local(entry: os.DirEntry[str]) -> RunFile:
    status = entry.stat(follow_symlinks=False)
    return RunFile(entry.path, entry.name, status.st_size, str(status.st_mtime_ns))


def _listed(filesystem: Any, row: dict[str, Any]) -> RunFile:
    stamp = next((str(row[key]) for key in ("ETag", "etag", "LastModified", "mtime", "created") if row.get(key)), "")
    return RunFile(
        filesystem.unstrip_protocol(row["name"]), posixpath.basename(row["name"]), int(row["size"] or 0), stamp
    )


def _is_ours(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in PATTERNS)


def _remote(url: str) -> tuple[Any, str]:
    protocol = url.partition("://")[0]
    package = PROTOCOLS.get(protocol, "fsspec")
    try:
        import fsspec

        return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        raise ProfilerError(
            f"{url} cannot be reached ({error}).", f"pip install 'profile-train[fleet]' {package}"
        ) from error
