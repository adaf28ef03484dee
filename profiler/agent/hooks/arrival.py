"""How many batches lie ready as the program asks an iterator for one.

The queue of the workers counts a batch as soon as a worker puts it. One thread of the worker then sends it, and another
hands over the memory of its tensors, in some ten turns, when the training process asks for it. If the worker goes on
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
UNKNOWN = -2  # a queue of the program's own, which is not asked
_QUEUES = ("multiprocessing.", "torch.multiprocessing.", "queue", "_queue")

TURN_NS = 5_000_000
"""Default of `sys.getswitchinterval()`, ns: a shorter fetch has not waited for a turn."""

PART = 0.5
"""Fraction of a fetch that shows a wait for a worker.

The worker computed for more than this, and this thread for less.
"""

Asked = tuple[int, int, bool]
"""The number of batches in the queue, of those that came out of order and were put by, and whether the next one is
among these. Without a queue to ask, the first is negative."""


class Arrival:
    """The arrival of the batches of one iterator.

    Its methods are given the iterator's dictionary. To keep it could keep the iterator, to which its data may lead.
    """

    def __init__(self, held: dict[str, Any]) -> None:
        queue = held.get("_data_queue")
        self._is_known = module_of(type(queue)).startswith(_QUEUES)
        self._none = NO_WORKERS if queue is None else UNKNOWN, 0, False
        self._pipe = getattr(queue, "_reader", None) if self._is_known else None
        """None if a thread of this process puts the batches into the queue."""
        self._poll: Callable[[int], Any] | None = None
        self._is_slow = False
        """Whether the last fetch was slow, so that a closer look at the next one costs comparatively nothing."""
        self._before: tuple[int, int, int] | None = None

    def asked(self, held: dict[str, Any]) -> Asked:
        """Return what lies ready as `next()` begins."""
        if not self._is_known:
            return self._none
        queued = held["_data_queue"].qsize()
        # Of more batches than workers one was put a batch's time ago, and has long been sent.
        if queued and (self._is_slow or queued <= held["_num_workers"]) and not self._has_come(held):
            queued = 0
        put_by = _put_by(held)
        return queued, put_by, put_by > 0 and len(held["_task_info"].get(held["_rcvd_idx"], ())) == 2

    def ready(self, held: dict[str, Any], asked: Asked, nanoseconds: int) -> int:
        """Return how many batches were ready when the one was requested that `next()` returned after so many ns.

        Returns 0 if that one was not among them. Batches are handed out in order. If as many batches as lay in the
        queue have since been set aside as out of order, the requested one was not there, however many others were.
        """
        queued, put_by, next_put_by = asked
        if queued < 0:
            return queued
        was_late = queued > 0 and nanoseconds > TURN_NS and self._was_late(nanoseconds)
        if was_late or (not next_put_by and (queued == 0 or _put_by(held) - put_by >= queued)):
            return 0
        return queued + put_by

    def _has_come(self, held: dict[str, Any]) -> bool:
        """Return whether something can be read."""
        if self._before is not None:  # and nobody asked whether that fetch was late, for it was quick
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
        except RuntimeError:  # two threads share the iterator, and the other one is asking
            return True

    def _was_late(self, nanoseconds: int) -> bool:
        """Return whether a fetch waited for a worker that was computing; the first slow one is unknown."""
        before, self._before, self._is_slow = self._before, None, self._pipe is not None
        if before is None:
            return False
        worker, own, its = before
        try:
            its = time.clock_gettime_ns(worker) - its
        except OSError:  # it has ended
            return False
        return time.thread_time_ns() - own < PART * nanoseconds < its


def _put_by(held: dict[str, Any]) -> int:
    return sum(1 for info in held["_task_info"].values() if len(info) == 2)


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
