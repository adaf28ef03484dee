"""The program's output during training: time in log handlers and fsync, and write calls.

The time leading up to an output is measured, too.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from ..dynamo import not_for_dynamo
from ..event_writer import clock
from ..files import contents
from ..observe import observe
from ..ring import SAVE
from ..session import Agent, ident


class Output:
    """The output counters, reported at the agent's tick."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._seconds_ns = self._leading_up_ns = 0
        self._last = 0
        """When the training thread's last output ended, ns."""
        self._thread: int | None = None
        """The training thread, as far as known."""
        self._inside = False
        """Whether the training thread is in a call that is being timed."""
        self._seen = 0
        """When the training thread last did something else before that call, ns."""
        self._writes_before = self._write_calls()
        self._steps_before = agent.steps

    def install(self) -> None:
        """Time log records and syncs to disk: observe `logging.Handler.handle` and `os.fsync`."""
        code = getattr(logging.Handler.handle, "__code__", None)
        posix = sys.modules.get(os.fsync.__module__)  # fsync is pickled under this module's name
        for name, owners in ("handle", [logging.Handler]), ("fsync", [os, posix] if posix else [os]):
            observe(self._agent, "output", name, self._before, *owners, after=self._after)
        if code is not None:  # logging recognizes its own frames by their file
            handle: Any = logging.Handler.handle
            handle.__code__ = handle.__code__.replace(co_filename=code.co_filename)
            not_for_dynamo(self._agent.torch, handle)
        self._agent.on_tick.append(self._at_tick)

    def _before(self, *_: Any, **__: Any) -> int | None:
        """Return the time if this call is output of the step.

        Output of other threads delays nothing. Output within other output is part of the latter. A sync during a
        checkpoint or after it belongs to the checkpoint.
        """
        if ident() != self._thread or self._inside or self._thread in self._agent.in_save:
            return None
        self._seen, kind = self._agent.last_seen()
        self._inside = kind != SAVE
        return clock() if self._inside else None

    def _after(self, begin: int, *_: Any) -> None:
        self._inside = False
        end = clock()
        self._seconds_ns += end - begin
        self._leading_up_ns += max(0, begin - max(self._last, self._seen))
        self._last = end

    def _at_tick(self) -> None:
        agent = self._agent
        self._thread = ident()
        self._inside = False  # an interrupt may have ended an observed call before it began
        self._last = clock()  # the agent's own work leads up to no output
        if agent.steps < 10:  # start-up writes are not typical
            self._seconds_ns = self._leading_up_ns = 0
            self._writes_before, self._steps_before = self._write_calls(), agent.steps
            return
        writes = self._write_calls()
        agent.fact(
            "output",
            {
                "writes": None if writes is None or self._writes_before is None else writes - self._writes_before,
                "seconds": self._seconds_ns / 1e9,
                "leading_up": self._leading_up_ns / 1e9,
                "steps": agent.steps - self._steps_before,
            },
        )

    def _write_calls(self) -> Any:
        """Return the program's write() system calls so far; None if Linux does not report them."""
        own_writes = 0 if self._agent.event_writer is None else self._agent.event_writer.writes
        try:
            for line in contents("/proc/self/io").splitlines():
                if line.startswith(b"syscw:"):
                    return int(line.split()[1]) - own_writes
        except (OSError, ValueError):
            pass
        return None
