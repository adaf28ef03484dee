"""Report the newest steps of a run to a program that draws them while it trains.

It runs as a process next to the program. Each line on stdin is a question, each line on stdout an answer in the format
of result.json.
"""

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
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
"""Most rows of steps, and of samples, to read for an answer, which takes some tenths of a second."""


def newest_steps(folder: Path, pid: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of a process's steps since the previous ones were yielded.

    Empty if there are none, or if the run cannot be read at the moment.
    """
    steps_path: Path | None = None  # the file that holds the steps; other nodes' files are not read again
    since = -1.0
    while True:
        answer = {}
        with suppress(ProfilerError, Missing):
            for path in [steps_path] if steps_path else find(folder):
                node = read(path, newest_rows(pid, since, ROWS))
                if node.steps and node.runs and node.runs[-1].host == socket.gethostname():
                    answer = figures(node, pid)
                    steps_path, since = path, node.steps[-1].start
                    break
        yield answer


def figures(node: Tables, pid: int) -> dict[str, Any]:
    """Return the figures of all ordinary steps of a process, warm-up included.

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
    answers = newest_steps(Path(folder), int(pid))
    for _ in sys.stdin:
        begin = time.process_time()
        answer = next(answers)
        sys.stdout.write(json.dumps({**answer, "cost_s": time.process_time() - begin}) + "\n")
        sys.stdout.flush()
