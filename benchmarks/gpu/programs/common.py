"""Print what a program measured as its last line, for accept.py to read."""

import itertools
import json
import statistics
import time

import torch


def say(**facts):
    """Print `facts` as one line of JSON."""
    print(json.dumps(facts), flush=True)


def digest(losses):
    """Return losses as exact text: equal only if every bit is."""
    return [float(loss).hex() for loss in losses]


class Pace:
    """Keep the wall-clock time at which each step ended, without synchronizing."""

    def __init__(self):
        self.ends = [time.time()]

    def step(self):
        self.ends.append(time.time())

    def lengths(self):
        return [end - begin for begin, end in itertools.pairwise(self.ends)]

    def median(self, skip=20):
        lengths = self.lengths()
        return statistics.median(lengths[min(skip, len(lengths) // 2) :])


def spin(seconds, rate=None):
    """Occupy the GPU's current stream for `seconds`; `rate` is what `spin_rate` measured."""
    torch.cuda._sleep(int(seconds * (rate or spin_rate())))


def spin_rate(cycles=20_000_000):
    """Measure how many cycles `torch.cuda._sleep` spins in a second."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(cycles)  # clocks rise
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    torch.cuda.synchronize()
    return cycles / (begin.elapsed_time(end) / 1e3)
