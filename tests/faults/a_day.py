"""Record 24 h that pass in seconds: `python a_day.py <run folder> <seconds per step> <rings of workers per minute>`.

Rings, recorder and store are real; only the clock and the host's sampler are simulated. Prints the outcome as JSON.
"""

import json
import os
import posix
import sys
import threading
import time
from pathlib import Path

import psutil

from profiler.agent import ring
from profiler.options import RecordingOptions
from profiler.recorder import record
from profiler.schema import HostSample

HOURS = 24
POLL = 10.0  # simulated seconds between polls; ten polls a second, as in reality, would take an hour
OURSELVES = os.getpid()


class Host:
    """A stand-in for the host's sampler; the program is this process alone."""

    pids = frozenset((OURSELVES,))

    def __init__(self, program):
        pass

    def sample(self, time, workers):
        return HostSample(time=time, cpu=1.0, rss=1 << 30, processes=1)


class Clock:
    """The clock that both ends read instead of the monotonic clock."""

    now = 0

    def read(self):
        return self.now


def main(folder, step, workers):
    clock = Clock()
    time.perf_counter_ns = clock.read
    record.HostSampler = Host
    record.COMMIT_EVERY = record.LOOK_EVERY = POLL
    rings = folder / "rings"
    rings.mkdir(parents=True)
    options = RecordingOptions(rate=1 / POLL, stacks=False)
    recorder = record.Recorder(folder, rings, record.new_run(("train.py",), 0, 0.01), OURSELVES, options, origin=0)
    writer = ring.RingWriter(str(rings / "rank.ring"), 1 << 15)
    thread, length = threading.get_ident(), int(step * 1e9)
    resident, started = [], 0
    steps = int(HOURS * 3600 / step)
    due = 0
    for number in range(steps):
        begin = clock.now
        clock.now = end = begin + length
        writer.write(thread, ring.FETCH, begin, begin + length // 10, 1, 2)
        writer.write(thread, ring.FORWARD, begin + length // 10, begin + length // 3, 1, 1, 1)
        writer.write(thread, ring.BACKWARD, begin + length // 3, begin + length // 2)
        writer.write(thread, ring.OPTIMIZER, end - length // 10, end, 1)
        if workers and int(end / 60e9) > int(begin / 60e9):  # an epoch is over: the next one has new workers
            for _ in range(workers):
                started += 1
                work(rings, started, begin)
        if end >= due:
            due = end + POLL * 1e9
            recorder.poll()
        if number % (steps // 8) == steps // 8 - 1:
            resident.append(psutil.Process().memory_info().rss)
    recorder.finish("completed", 0)
    print(json.dumps({"steps": steps, "resident": resident, "workers": started}))


def work(rings, number, begin):
    """Write the ring of a worker that makes ten batches and ends."""
    posix.getpid = lambda: 1_000_000 + number
    (rings / f"{number}.facts").write_text(json.dumps({"kind": "process", "t": begin, "role": "worker"}) + "\n")
    writer = ring.RingWriter(str(rings / f"{number}.ring"), 1 << 11)
    posix.getpid = lambda: OURSELVES
    for batch in range(10):
        at = begin + batch * 1_000_000
        writer.write(1, ring.BATCH, at, at + 900_000, 1, 800_000, 1000, 32, -1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
