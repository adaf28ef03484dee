"""Limits that control groups put on this process (Linux, cgroup v1 and v2).

They are a container's share of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from profiler.reading import text

UNLIMITED = 2**62
"""Bytes from which a limit means "no limit", which version 1 writes as 2**63 minus a page."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The folders of the groups that limit this process, innermost first."""

    cpu: tuple[Path, ...] = ()
    memory: tuple[Path, ...] = ()

    @classmethod
    def own(cls, root: Path = Path("/")) -> Cgroup:
        """Return the groups of this process; without limits if there are no control groups.

        Args:
            root: Folder that contains /proc and /sys.
        """
        try:
            memberships = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
            mounts = (root / "proc/self/mountinfo").read_text().splitlines()
        except OSError:
            return cls()
        # In version 2, the controller name is empty.
        paths = {controller: path for _, controllers, path in memberships for controller in controllers.split(",")}
        folders = [(controller, folder) for mount in mounts for controller, folder in _folders(mount, paths, root)]
        return cls(
            cpu=tuple(folder for controller, folder in folders if controller in ("", "cpu") and _quota(folder)),
            memory=tuple(folder for controller, folder in folders if controller in ("", "memory") and _limit(folder)),
        )

    def cpu_quota(self) -> float | None:
        """Return the CPU time the groups allow, in cores; None if they set no limit."""
        return min((quota for folder in self.cpu if (quota := _quota(folder)) is not None), default=None)

    def memory_limit(self) -> int | None:
        """Return the bytes the groups allow; None if they set no limit."""
        return min((limit for folder in self.memory if (limit := _limit(folder)) is not None), default=None)

    def memory_available(self) -> int | None:
        """Return the bytes available before a limit is reached; None if there is no limit.

        This is the limit minus the used memory that cannot be dropped at once. File pages that were not used lately can
        be dropped, so they count as available, as in `MemAvailable` of /proc/meminfo.
        """
        return min((available for folder in self.memory if (available := _left(folder)) is not None), default=None)


def _folders(mount: str, paths: dict[str, str], root: Path) -> Iterator[tuple[str, Path]]:
    """Yield controller and folder for each level of this process's group under one line of mountinfo.

    A line that mounts no cgroups yields nothing.
    """
    mount_fields, _, filesystem = mount.partition(" - ")
    kind, *_, options = filesystem.split(" ")  # the source in between may be empty
    if kind not in ("cgroup", "cgroup2"):
        return
    top, mountpoint = mount_fields.split()[3:5]
    for controller in [""] if kind == "cgroup2" else options.split(","):
        if controller not in paths:
            continue
        # A container often sees only its own group, as the top.
        group = PurePosixPath(paths[controller])
        is_below = ".." not in group.parts and group.is_relative_to(top)
        relative = group.relative_to(top) if is_below else PurePosixPath()
        for level in (relative, *relative.parents):
            yield controller, root / mountpoint.lstrip("/") / level


def _quota(folder: Path) -> float | None:
    words = _words(folder / "cpu.max") or [*_words(folder / "cpu.cfs_quota_us"), *_words(folder / "cpu.cfs_period_us")]
    if len(words) != 2 or words[0] in ("max", "-1"):
        return None
    return int(words[0]) / int(words[1])


def _limit(folder: Path) -> int | None:
    words = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
    return int(words[0]) if words and words[0] != "max" and int(words[0]) < UNLIMITED else None


def _left(folder: Path) -> int | None:
    limit = _limit(folder)
    usage = _words(folder / "memory.current") or _words(folder / "memory.usage_in_bytes")
    if limit is None or not usage:
        return None
    words = _words(folder / "memory.stat")
    statistics = dict(zip(words[::2], words[1::2], strict=False))
    droppable = int(statistics.get("total_inactive_file") or statistics.get("inactive_file") or 0)
    return max(0, limit - int(usage[0]) + droppable)


def _words(file: Path) -> list[str]:
    return text(file).split()
