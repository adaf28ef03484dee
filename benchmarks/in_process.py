"""What the agent costs a step, in one process: it is put in and taken out again between short blocks of the same loop.

Two processes of one program differ by a few microseconds a step, by where their memory happens to lie; two blocks of
one process do not. A turn is a block without the agent, one with it, and one with hooks that only take the time
(floor.py), in random order. The mean of a block holds what the median leaves out: events go to the ring every 20 ms,
facts are refreshed twice a second. The CPU time of the quietest steps holds what other programs do not disturb: it is
what remains to compare on a busy machine. Writes a JSON object: seconds a step of every block, and events a step.
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
import torch.utils.data  # noqa: F401 - as it is once the program trains
from events import in_rings
from floor import Hooks
from loops import ALONE, LOOPS
from training import build

from profiler import step
from profiler.agent import start

SECONDS = 0.55
"""Of a block: a little more than the half second between two refreshments."""
QUIET = 0.05
"""Share of a block's steps that other programs leave undisturbed, on a machine that is not always busy."""
WARM_SECONDS, WARM_STEPS = 0.05, 100
"""Left out at the beginning of a block: the agent looks at the model in three steps, has its first flush after 20 ms,
and looks into each of the first 64 batches but into few of the later ones."""


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
    """As a loop without an optimizer has it."""

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
