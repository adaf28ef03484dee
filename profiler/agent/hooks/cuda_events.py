"""GPU time without a wait: CUDA events at the boundaries of a step, read later by `query()`.

The time between two neighbouring events is what passed on the GPU's stream between the two boundaries, idle time
included; so the segments partition the step as the GPU lived it, and a loader's wait that was hidden behind queued
kernels is not counted.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ..outlet import clock
from ..ring import GPU, MARK_OPTIMIZER_END
from ..session import Agent, ident

# An event costs some 5 us to record and read; a step has at least eight. Shorter steps are measured now and then.
FULL_RATE_STEP_NS = 5_000_000
SPARSE = 16
# More than this many unread events means the GPU is far behind or lost: start anew.
MOST_PENDING = 4096


class Marks:
    """Call it at each boundary with its code (ring.MARK_*)."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._cuda = agent.torch.cuda
        self._free: list[Any] = []
        self._pending: deque[tuple[int, int, Any, bool]] = deque()
        """Code, host ns, event, and whether boundaries before it were left out."""
        self._before: Any | None = None
        """The last event read."""
        self._live = False
        self._on = False
        self._gap = False
        self._steps = 0
        self._last_step = 0

    def __call__(self, code: int) -> None:
        """Never raises: whatever goes wrong ends the marks."""
        # The hooks that hold us are not told that we have ended, here or in a forked child.
        if self._agent.mark is not self or not (self._live or self._begin()):
            return
        try:
            self._mark(code)
        except Exception as error:
            self._agent.mark = None
            self._agent.give_up("cuda_events", error)

    def _begin(self) -> bool:
        """CUDA is the program's to initialise, never ours."""
        self._live = self._cuda.is_initialized()
        self._on = self._live
        return self._live

    def _mark(self, code: int) -> None:
        if self._on and not self._cuda.is_current_stream_capturing():
            event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
            event.record()
            self._pending.append((code, clock(), event, self._gap))
            self._gap = False
        else:
            self._gap = True
        if code == MARK_OPTIMIZER_END:
            self._end_step()

    def _end_step(self) -> None:
        now = clock()
        short = now - self._last_step < FULL_RATE_STEP_NS
        self._last_step = now
        self._steps += 1
        # Two whole steps in a row out of every SPARSE: the first gives the second its beginning.
        self._on = not short or self._steps % SPARSE < 2
        self._read()

    def _read(self) -> None:
        pending = self._pending
        thread = ident()
        put = self._agent.put
        while pending and pending[0][2].query():
            code, at, event, gap = pending.popleft()
            before = self._before
            elapsed = -1 if gap or before is None else int(before.elapsed_time(event) * 1e6)
            put((thread, GPU, at, at, code, elapsed))
            if before is not None:
                self._free.append(before)
            self._before = event
        if len(pending) > MOST_PENDING:
            pending.clear()
            self._before = None
