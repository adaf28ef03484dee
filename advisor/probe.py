"""Measurements that a run asks for after its end, before it is judged: so far, other numbers of threads."""

from __future__ import annotations

from pathlib import Path

from advisor.load import load
from advisor.metrics.base import Metrics, Missing
from advisor.metrics.host import run
from advisor.metrics.settings import primary_rank
from advisor.metrics.threads import compute_fraction, largest_matmul, threads_to_try
from advisor.rules.cpu_threads_misset import MIN_COMPUTE
from profiler.recorder import threads


def probe(folder: Path) -> None:
    """Try other numbers of threads, if the run computes on the CPU with one that nobody has chosen.

    Its result is kept with the recording. Raises ProfilerError if that cannot be read.
    """
    m = Metrics(load(folder))
    try:
        if len(m.profile.runs) > 1 or not m[threads_to_try] or m[compute_fraction] < m[MIN_COMPUTE]:
            return
        process = m[primary_rank].process
        seconds = threads.measure(process, m[largest_matmul], m[threads_to_try])
    except Missing:
        return
    if seconds:
        threads.keep(folder, m[run], process, seconds)
