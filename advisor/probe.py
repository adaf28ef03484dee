"""Measurements that a run asks for after its end, before it is judged: so far, other numbers of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from advisor.load import load
from advisor.metrics.base import Metrics, Missing
from advisor.metrics.host import run
from advisor.metrics.settings import primary_rank
from advisor.metrics.threads import MIN_COMPUTE, compute_fraction, largest_matmul, threads_to_try
from advisor.rules.base import Rule
from profiler.recorder import threads
from profiler.recorder.folder import is_shared

CPU_THREADS_MISSET = "cpu-threads-misset"


def probe(folder: Path, rules: Iterable[Rule], say: Callable[[str], None]) -> None:
    """Try other numbers of threads, if the run computes on the CPU with one that nobody has chosen, and a rule asks.

    `say` is told before it begins. Its result is kept with the recording. Raises ProfilerError if that cannot be read.
    """
    asking = next((rule for rule in rules if rule.id == CPU_THREADS_MISSET and not rule.off), None)
    if asking is None:
        return
    m = asking.view(Metrics(load(folder)))
    try:
        if len(m.profile.runs) > 1 or is_shared(folder):
            return
        if not m[threads_to_try] or m[compute_fraction] < m[MIN_COMPUTE]:
            return
        process = m[primary_rank].process
        say("trying other numbers of threads, some seconds (the program has chosen none)")
        seconds = threads.measure(process, m[largest_matmul], m[threads_to_try])
    except Missing:
        return
    if seconds:
        threads.keep(folder, m[run], process, seconds)
