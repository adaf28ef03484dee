"""Report the newest steps of a run to a program that draws them while it trains.

It runs as a process next to the program. Each line on stdin is a question, each line on stdout an answer in the format
of result.json.
"""

import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.metrics.base import Metrics, Missing
from advisor.metrics.hardware import gpu_utilization
from advisor.metrics.step import ordinary, phase_seconds, steady_steps, step_time_mean, step_time_p90
from advisor.runs.load import ranks_of
from advisor.runs.profile import Profile
from profiler.errors import ProfilerError
from profiler.store import Tables, find, newest_rows, read

ROWS = 1 << 14
"""Most rows of steps, and of samples, that are read for an answer: some tenths of a second."""


class NewestSteps:
    """A reader of one process's steps in a run folder."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder = folder
        self._pid = pid
        self._path: Path | None = None
        """The file that holds the steps; those of other nodes are not read again."""
        self._since = -1.0
        """Start of the last step that was reported."""

    def look(self) -> dict[str, Any]:
        """Return the figures of the steps since the last look.

        Empty if there are none, or if the run cannot be read at the moment.
        """
        try:
            for path in [self._path] if self._path else find(self._folder):
                node = read(path, newest_rows(self._pid, self._since, ROWS))
                if node.steps and node.runs and node.runs[-1].host == socket.gethostname():
                    newest = figures(node, self._pid)
                    self._path, self._since = path, node.steps[-1].start
                    return newest
        except (ProfilerError, Missing):
            pass
        return {}


def figures(node: Tables, pid: int) -> dict[str, Any]:
    """Return the figures of all its ordinary steps, warm-up included.

    Raises:
        Missing: no step time was measured.
    """
    steps = tuple(ordinary(node.steps))
    ranks = tuple(replace(rank, steps=steps) for rank in ranks_of(node) if rank.process.pid == pid)
    profile = Profile(runs=node.runs, ranks=ranks, gpus=node.gpus, gpu_samples=node.gpu_samples)
    m = Metrics(profile, given={steady_steps: steps})
    mean = m[step_time_mean]
    return {
        "steps": {"count": sum(step.count for step in node.steps), "time_s": {"mean": mean, "p90": m[step_time_p90]}},
        "phases": {phase: seconds / mean for phase, seconds in m[phase_seconds].items()} if mean else {},
        "metrics": {gpu_utilization.name: {"value": m.get(gpu_utilization)}},
    }


def main(arguments: list[str]) -> None:
    """Answer questions until stdin ends. Arguments: run folder, PID of the program."""
    folder, pid = arguments
    reading = NewestSteps(Path(folder), int(pid))
    for _ in sys.stdin:
        begin = time.process_time()
        newest = reading.look()
        sys.stdout.write(json.dumps({**newest, "cost_s": time.process_time() - begin}) + "\n")
        sys.stdout.flush()
