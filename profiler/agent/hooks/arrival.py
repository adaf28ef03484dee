"""The number of batches that are ready when the program requests one from an iterator.

The queue of the workers counts a batch as soon as a worker puts it. One thread of the worker then sends it, and another
hands over the memory of its tensors, in some ten turns, when the training process asks for it. If the worker continues
computing in Python, each turn waits up to a switch interval: the training process finds a batch in the queue and still
waits for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from ..look import module_of

NO_WORKERS = -1
UNKNOWN = -2  # a queue class of the program, which is not queried
_QUEUES = ("multiprocessing.", "torch.multiprocessing.", "queue", "_queue")

TURN_NS = 5_000_000
"""Default of `sys.getswitchinterval()`, ns: a shorter fetch has not waited for a turn."""

PART = 0.5
"""Fraction of the duration of a fetch.

If the worker computed for more than this, and this thread for less, the fetch waited for the worker.
"""

Asked = tuple[int, int, bool]
"""The number of batches in the queue, the number that came out of order and were set aside, and whether the next batch
is one of the latter. Without a queue to query, the first number is negative."""


class Arrival:
    """The arrival of the batches of one iterator.

    Its methods receive the iterator's dictionary. Storing that could keep the iterator alive, because its data may
    refer to the iterator.
    """

    def __init__(self, held: dict[str, Any]) -> None:
        queue = held.get("_data_queue")
        self._is_known = module_of(type(queue)).startswith(_QUEUES)
        self._none = NO_WORKERS if queue is None else UNKNOWN, 0, False
        self._pipe = getattr(queue, "_reader", None) if self._is_known else None
        """None if a thread of this process puts the batches into the queue."""
        self._poll: Callable[[int], Any] | None = None
        self._is_slow = False
        """Whether the last fetch was slow, so that a closer look at the next one is comparatively cheap."""
        self._before: tuple[int, int, int] | None = None

    def asked(self, held: dict[str, Any]) -> Asked:
        """Return what is ready when `next()` begins."""
        if not self._is_known:
            return self._none
        queued = held["_data_queue"].qsize()
        # If more batches than workers are queued, one was put a batch's time ago, and has long been sent.
        if queued and (self._is_slow or queued <= held["_num_workers"]) and not self._has_come(held):
            queued = 0
        set_aside = _put_by(held)
        return queued, set_aside, set_aside > 0 and len(held["_task_info"].get(held["_rcvd_idx"], ())) == 2

    def ready(self, held: dict[str, Any], asked: Asked, nanoseconds: int) -> int:
        """Return how many batches were ready when one was requested, for a `next()` that took `nanoseconds`.

        Returns 0 if the requested batch was not among them. Batches are handed out in order. If as many batches as were
        in the queue have since been set aside as out of order, the requested one was not there, however many others
        were.
        """
        queued, set_aside, next_is_set_aside = asked
        if queued < 0:
            return queued
        was_late = queued > 0 and nanoseconds > TURN_NS and self._was_late(nanoseconds)
        if was_late or (not next_is_set_aside and (queued == 0 or _put_by(held) - set_aside >= queued)):
            return 0
        return queued + set_aside

    def _has_come(self, held: dict[str, Any]) -> bool:
        """Return whether a batch can be read from the queue's pipe; True if the pipe cannot be polled."""
        if self._before is not None:  # the last fetch was quick, so `_was_late` was not called
            self._is_slow, self._before = False, None
        elif self._is_slow:
            self._before = _cpu_times(held)
        if self._pipe is None:
            return True
        if self._poll is None:
            select: Any = sys.modules["select"]
            if not hasattr(select, "poll"):  # eventlet removes it
                return True
            poller = select.poll()
            poller.register(self._pipe.fileno(), select.POLLIN)
            self._poll = poller.poll
        try:
            return bool(self._poll(0))
        except RuntimeError:  # two threads share the iterator, and the other one is polling
            return True

    def _was_late(self, nanoseconds: int) -> bool:
        """Return whether a fetch waited for a worker that was computing; False for the first slow one (unknown)."""
        times_before, self._before, self._is_slow = self._before, None, self._pipe is not None
        if times_before is None:
            return False
        worker_clock, own_cpu, worker_cpu = times_before
        try:
            worker_cpu = time.clock_gettime_ns(worker_clock) - worker_cpu
        except OSError:  # the worker has ended
            return False
        return time.thread_time_ns() - own_cpu < PART * nanoseconds < worker_cpu


def _put_by(held: dict[str, Any]) -> int:
    return sum(1 for info in held["_task_info"].values() if len(info) == 2)


def _cpu_times(held: dict[str, Any]) -> tuple[int, int, int] | None:
    """Return the CPU clock of the next batch's worker, and the CPU times of this thread and of that worker in ns.

    Returns None if they cannot be read, because the epoch or the worker has ended.
    """
    try:
        process = held["_workers"][held["_task_info"][held["_rcvd_idx"]][0]]
        worker_clock = ~process.pid << 3 | 2  # as in clock_getcpuclockid(3)
        return worker_clock, time.thread_time_ns(), time.clock_gettime_ns(worker_clock)
    except (LookupError, TypeError, ValueError, OSError):  # the epoch or the worker is over
        return None
