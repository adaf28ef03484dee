"""Whether a batch that a worker has put into its queue can be read yet.

The queue counts a batch as soon as the worker puts it. One thread of the worker then sends it, and another hands over
the memory of its tensors, in some ten turns, when the training process asks for it. If the worker goes on computing in
Python, each turn waits up to a switch interval: the training process finds a batch in the queue and still waits for
it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

TURN_NS = 5_000_000
"""Default of `sys.getswitchinterval()`, ns: a shorter fetch has not waited for a turn."""

PART = 0.5
"""Fraction of a fetch that shows a wait for a worker.

The worker computed for more than this, and this thread for less.
"""


class Arrival:
    """The arrival of the batches of one iterator that has workers."""

    def __init__(self, queue: Any) -> None:
        pipe = getattr(queue, "_reader", None)  # none if a thread of this process puts the batches there
        self._poll = _poll(pipe)
        self._piped = pipe is not None
        self.slow = False
        """Whether the last fetch was slow, so that a closer look at the next one costs comparatively nothing."""
        self._before: tuple[int, int, int] | None = None

    def has_come(self, held: dict[str, Any]) -> bool:
        """Return whether something can be read; asked as `next()` begins, if something was put. `held` is the
        iterator's dictionary."""
        if self._before is not None:  # and nobody asked whether that fetch was late, for it was quick
            self.slow, self._before = False, None
        elif self.slow:
            self._before = _cpu_times(held)
        try:
            return bool(self._poll(0))
        except RuntimeError:  # two threads share the iterator, and the other one is asking
            return True

    def was_late(self, nanoseconds: int) -> bool:
        """Return whether a fetch of so many ns waited for a worker that was computing.

        Call it only for fetches longer than TURN_NS. The first of them is unknown and returns False.
        """
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
    """Return a function that reports whether the pipe can be read.

    It always returns True if there is no pipe, or no `poll` on this platform.
    """
    select: Any = sys.modules.get("select")
    if pipe is None or not hasattr(select, "poll"):
        return lambda _: True
    poller = select.poll()
    poller.register(pipe.fileno(), select.POLLIN)
    poll: Callable[[int], Any] = poller.poll
    return poll


def _cpu_times(held: dict[str, Any]) -> tuple[int, int, int] | None:
    """Return the CPU clock of the worker that makes the next batch, and two CPU times in ns.

    The times are those of this thread and of the worker. Returns None if they cannot be read: the epoch or the
    worker has ended.
    """
    try:
        maker = held["_workers"][held["_task_info"][held["_rcvd_idx"]][0]]
        worker = ~maker.pid << 3 | 2  # as clock_getcpuclockid(3) has it
        return worker, time.thread_time_ns(), time.clock_gettime_ns(worker)
    except (LookupError, TypeError, ValueError, OSError):  # the epoch or the worker is over
        return None
