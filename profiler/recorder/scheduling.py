"""Whether the ranks get the cores they need, from the kernel's statistics of the training thread."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from profiler.reading import text
from profiler.schema import Fact


class Scheduling:
    """The scheduling of each rank's main thread from its first training event on. Each look reads one file of /proc."""

    def __init__(self) -> None:
        self._looks: dict[int, list[tuple[float, int, int]]] = {}
        """Of each PID the first and the last look: its time, ns on a core, and ns waiting for one."""

    def look(self, now: float, pids: Iterable[int]) -> None:
        """Read the current statistics; a process that is gone keeps those of the last look."""
        for pid in pids:
            with suppress(ValueError):  # no such file
                ran, waited, *_ = map(int, text(Path(f"/proc/{pid}/schedstat")).split())
                self._looks.setdefault(pid, [(now, ran, waited)])[1:] = [(now, ran, waited)]

    def facts(self) -> list[Fact]:
        """Return the SchedulingFacts; none if the kernel keeps no such statistics."""
        return [
            Fact(
                pid=pid,
                time=ended,
                kind="scheduling",
                body={
                    "seconds": ended - began,
                    "ran": (ran - ran_before) / 1e9,
                    "waited": (waited - waited_before) / 1e9,
                },
            )
            for pid, ((began, ran_before, waited_before), (ended, ran, waited)) in self._looks.items()
            if ended > began
        ]
