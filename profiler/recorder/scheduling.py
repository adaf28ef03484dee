"""Whether the ranks get the cores they need, from the kernel's statistics of the training thread."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from profiler.reading import text
from profiler.schema import Fact


class Scheduling:
    """The scheduling of each rank's main thread from its first training event on. Each look reads one file of /proc."""

    def __init__(self) -> None:
        self._looks: dict[int, list[tuple[float, int]]] = {}
        """Of each PID the first and the last look: its time, and the ns spent waiting for a core."""

    def look(self, now: float, pids: Iterable[int]) -> None:
        """Read the current statistics; a process that is gone keeps those of the last look."""
        for pid in pids:
            with suppress(ValueError):  # no such file
                _, waited, *_ = map(int, text(Path(f"/proc/{pid}/schedstat")).split())
                self._looks.setdefault(pid, [(now, waited)])[1:] = [(now, waited)]

    def facts(self) -> list[Fact]:
        """Return the SchedulingFacts; none if the kernel keeps no such statistics."""
        return [
            Fact(
                pid=pid,
                time=ended,
                kind="scheduling",
                body={"seconds": ended - began, "waited": (waited - before) / 1e9},
            )
            for pid, ((began, before), (ended, waited)) in self._looks.items()
            if ended > began
        ]
