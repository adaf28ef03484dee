"""Measure what the agent costs per step, in one process: it is inserted and removed between short blocks of one loop.

Two processes of one program differ by a few microseconds per step, depending on where their memory lies; two blocks of
one process do not. A turn is a block without the agent, one with it, and one with hooks that only read the clock
(floor.py), in random order. The mean of a block includes what the median leaves out: events go to the ring every 20 ms,
and facts are refreshed twice a second. The CPU time of the quietest steps is free of disturbance by other programs: on
a busy machine, only that can be compared. Writes a JSON object: seconds per step of every block, and events per step.
"""

import argparse
import itertools
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import checkout  # noqa: F401
import torch.utils.data  # noqa: F401 - as in a program that trains
from events import in_rings
from floor import Hooks
from loops import ALONE, LOOPS
from training import build

from profiler import step
from profiler.agent import start

SECONDS = 0.55
"""Seconds of a block: slightly more than the half second between two refreshes."""
QUIET = 0.05
"""Share of a block's steps that other programs leave undisturbed, on a machine that is not always busy."""
WARM_SECONDS, WARM_STEPS = 0.05, 100
"""Start of a block that is left out: the agent examines the model in three steps, has its first flush after 20 ms, and
examines each of the first 64 batches but few of the later ones."""


def blocks(loop, pairs, seed):
    training = build(loop)
    order = random.Random(seed)
    warm = max(WARM_STEPS, round(WARM_SECONDS / loop.seconds))
    steps = warm + round(SECONDS / loop.seconds)
    found, events = {"plain": [], "floor": [], "treated": []}, []
    _block(training, training.train, steps, warm)
    for _ in range(pairs):
        for way in order.sample([*found], len(found)):
            if way == "plain":
                found[way].append(_block(training, training.train, steps, warm))
            elif way == "floor":
                with Hooks(training.model):
                    found[way].append(_block(training, training.train, steps, warm))
            else:
                walls, rate = _treated(loop, training, steps, warm)
                found[way].append(walls)
                events.append(rate)
    return {**found, "events": statistics.median(events)}


def _treated(loop, training, steps, warm):
    folder = tempfile.mkdtemp(prefix="profile-train-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    try:
        start.begin({"rings": folder, "windows": None, "budget": 0.01})
        try:
            walls = _block(training, training.train if loop.optimizer else _with_steps(training.train), steps, warm)
        finally:
            start.end()
        return walls, in_rings(Path(folder))
    finally:
        shutil.rmtree(folder)


def _with_steps(train):
    """Return `train` followed by `step()`, as in a loop without an optimizer."""

    def stepped(batch):
        train(batch)
        step()

    return stepped


def _block(training, train, steps, warm):
    walls, cpus, last, used = [], [], time.perf_counter(), time.thread_time()
    for batch in itertools.islice(training.batches(), steps):
        train(batch)
        now, cpu = time.perf_counter(), time.thread_time()
        walls.append(now - last)
        cpus.append(cpu - used)
        last, used = now, cpu
    walls, cpus = walls[warm:], sorted(cpus[warm:])
    return {
        "median": statistics.median(walls),
        "mean": statistics.fmean(walls),
        "quiet": cpus[int(QUIET * len(cpus))],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loop", choices=ALONE)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    json.dump(blocks(LOOPS[args.loop], args.pairs, args.seed), sys.stdout)


if __name__ == "__main__":
    main()
