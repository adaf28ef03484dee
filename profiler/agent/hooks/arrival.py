"""Whether a batch that a worker has put into its queue can be taken from there.

A batch counts as soon as it was put. One thread of the worker then sends it, and another hands the memory of its
tensors over, in some ten turns, when the training process asks for it. All of that waits while the worker goes on
computing in Python, for a switch interval each turn: the training process finds a batch in the queue and waits for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

TURN_NS = 5_000_000
"""sys.getswitchinterval(), unless the program sets it: a fetch that takes less has not waited for a turn."""

PART = 0.5
"""Of a fetch, in which the worker computes and this thread does not: then the one waits for the other."""


class Arrival:
    """Of the batches of one iterator that has workers."""

    def __init__(self, queue: Any) -> None:
        pipe = getattr(queue, "_reader", None)  # none if a thread of this process puts the batches there
        self._poll = _poll(pipe)
        self._piped = pipe is not None
        self.slow = False
        """A fetch was, so that it costs nothing to look closer at the next one."""
        self._before: tuple[int, int, int] | None = None

    def has_come(self, iterator: Any) -> bool:
        """Something can be read; asked as `next()` begins, if something was put."""
        if self._before is not None:  # and nobody asked whether that fetch was late, for it was quick
            self.slow, self._before = False, None
        elif self.slow:
            self._before = _cpu_times(iterator)
        try:
            return bool(self._poll(0))
        except RuntimeError:  # two threads share the iterator, and the other one is asking
            return True

    def was_late(self, nanoseconds: int) -> bool:
        """The fetch that took so long, more than TURN_NS, waited for a worker that computed; unknown of the first."""
        before, self._before, self.slow = self._before, None, self._piped
        if before is None:
            return False
        worker, own, its = before
        try:
            its = time.clock_gettime_ns(worker) - its
        except OSError:  # it has ended
            return False
        return time.thread_time_ns() - own < PART * nanoseconds < its


def _poll(pipe: Any) -> Callable[[int], Any]:
    """What tells whether the pipe can be read; always so without one, and where it cannot be told."""
    select: Any = sys.modules.get("select")
    if pipe is None or not hasattr(select, "poll"):
        return lambda _: True
    poller = select.poll()
    poller.register(pipe.fileno(), select.POLLIN)
    poll: Callable[[int], Any] = poller.poll
    return poll


def _cpu_times(iterator: Any) -> tuple[int, int, int] | None:
    """The clock of the process that makes the next batch; the CPU time of this thread, and of that process, in ns."""
    if sys.platform != "linux":
        return None
    try:
        maker = iterator._workers[iterator._task_info[iterator._rcvd_idx][0]]
        worker = ~maker.pid << 3 | 2  # as clock_getcpuclockid(3) has it
        return worker, time.thread_time_ns(), time.clock_gettime_ns(worker)
    except (LookupError, TypeError, ValueError, OSError):  # the epoch or the worker is over
        return None
