"""What this machine can run."""

import os
import subprocess
import sys
from pathlib import Path

PROBE = Path(__file__).resolve().parent / "rows" / "probe.py"
LEAST_GAIN = 1.3
"""Least speedup: below it, another thread makes too little difference to be advised."""


def cores():
    return len(os.sched_getaffinity(0))


def why_not(row):
    """Return why the row cannot run here, or None."""
    if row.cores > cores():
        return f"needs {row.cores} cores; this machine has {cores()}"
    if row.gains_from_threads and (gain := threads_gain()) < LEAST_GAIN:
        return f"a matmul is {gain:.2f} times as fast on {cores()} threads, below {LEAST_GAIN}"
    return None


def threads_gain():
    """Return the speedup of the row's largest matmul from one core to all cores."""
    done = subprocess.run([sys.executable, PROBE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)
