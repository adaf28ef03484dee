"""Whether the ranks get the cores they need, from the kernel's statistics of the training thread."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from profiler.reading import text
from profiler.schema import Fact

PROC = Path("/proc")


@dataclass(slots=True)
class _Seen:
    """Nanoseconds on a core and waiting for one, at the first and the last look."""

    began: float
    first: tuple[int, int]
    ended: float
    last: tuple[int, int]


class Scheduling:
    """The scheduling of each rank's main thread from its first training event on. Each look reads one file of /proc."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._seen: dict[int, _Seen] = {}

    def look(self, now: float, pids: Iterable[int]) -> None:
        """Read the current statistics; a process that is gone keeps those of the last look."""
        for pid in pids:
            statistics = self._read(pid)
            if statistics is None:
                continue
            seen = self._seen.setdefault(pid, _Seen(now, statistics, now, statistics))
            seen.ended, seen.last = now, statistics

    def facts(self) -> list[Fact]:
        """Return the SchedulingFacts; none if the kernel keeps no such statistics."""
        return [
            Fact(
                pid=pid,
                time=seen.ended,
                kind="scheduling",
                body={
                    "seconds": seen.ended - seen.began,
                    "ran": (seen.last[0] - seen.first[0]) / 1e9,
                    "waited": (seen.last[1] - seen.first[1]) / 1e9,
                },
            )
            for pid, seen in self._seen.items()
            if seen.ended > seen.began
        ]

    def _read(self, pid: int) -> tuple[int, int] | None:
        try:
            ran, waited, *_ = text(self._proc / str(pid) / "schedstat").split()
            return int(ran), int(waited)
        except ValueError:
            return None
