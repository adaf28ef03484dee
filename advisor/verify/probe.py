"""Make the measurements that a run needs after its end, before it is judged: so far, other numbers of threads."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from advisor.metrics.base import Metrics, Missing
from advisor.metrics.host import run
from advisor.metrics.settings import primary_rank
from advisor.metrics.threads import MIN_COMPUTE, compute_fraction, largest_matmul, threads_to_try
from advisor.metrics.threads import threads as threads_used
from advisor.rules.base import Rule
from advisor.runs.load import load
from advisor.units import count
from profiler.recorder import threads
from profiler.recorder.folder import is_shared

CPU_THREADS_MISSET = "cpu-threads-misset"

MIN_FLOP = 4e6
"""Floating-point operations of the largest matmul below which the number of threads does not matter.

One core takes about a tenth of a millisecond for them, as long as the operator's own overhead and the start of its
threads (assumption).
"""

MIN_DURATION = 20.0
"""Shortest run in seconds that is worth a trial.

The trial takes 5 s, a quarter of that, mostly to import torch (measured: 0.9 to 8 s on a busy machine).
"""


def probe(folder: Path, rules: Iterable[Rule], say: Callable[[str], None]) -> None:
    """Time other numbers of threads, if a rule needs it and the run can gain from it.

    The run must compute on the CPU with a number of threads that it has not set itself, have a large enough largest
    matmul, and have completed after running for long enough. `say` receives a note before and the result after. The
    result is kept with the recording.

    Raises:
        ProfilerError: the recording cannot be read.
    """
    threads_rule = next((rule for rule in rules if rule.id == CPU_THREADS_MISSET and not rule.off), None)
    if threads_rule is None:
        return
    m = threads_rule.view(Metrics(load(folder)))
    try:
        if is_shared(folder) or not _is_worth_it(m):
            return
        process = m[primary_rank].process
        say("Testing other thread counts (~5 s) ...")
        seconds = threads.measure(process, m[largest_matmul], m[threads_to_try])
    except Missing:
        return
    if not seconds:
        say("Thread counts could not be compared: other programs use the cores.")
        return
    threads.keep(folder, m[run], process, seconds)
    say(_result(seconds, m[threads_used]))


def _is_worth_it(m: Metrics) -> bool:
    """Return whether a trial can matter.

    Raises:
        Missing: a deciding metric was not measured.
    """
    if len(m.profile.runs) > 1 or m[run].outcome != "completed" or (m[run].duration or 0.0) < MIN_DURATION:
        return False
    if not m[threads_to_try] or m[compute_fraction] < m[MIN_COMPUTE]:
        return False
    matmul = m[largest_matmul]
    return 2 * matmul.rows * matmul.inputs * matmul.outputs >= MIN_FLOP


def _result(seconds: Mapping[int, float], now: int) -> str:
    best = min(seconds, key=lambda number: (seconds[number], number))
    if now not in seconds or best == now:
        return f"The largest matmul is fastest with {count(best, 'thread')}, as in this run."
    return (
        f"The largest matmul is {seconds[now] / seconds[best]:.2g} times as fast with {count(best, 'thread')} as with "
        f"the {now} of this run."
    )
