"""Figures of the newest steps during training, for trackers that draw curves.

    with profile() as run, Live(run, every=100) as live:
        for step, batch in enumerate(loader):
            train(batch)
            if figures := live.newest(step):
                tracker.log(figures, step)

A separate process computes them. A request costs the training some microseconds, and the answer is returned at the end
of the step in which it arrives.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from profiler.child import python
from profiler.integrations.trackers import Result, figures
from profiler.printable import say
from profiler.session import profile

EVERY = 100
"""Default number of steps between two points."""

SHARE = 0.01
"""Maximum fraction of the time between two points that reading and reporting may take.

Reading is CPU time of the other process; reporting is time of the training itself. If a point took longer, the next
one comes later.
"""

PREFIX = "profile_train/live"
"""Prefix of live figures, distinct from the final ones, which cover the whole run."""


class Live:
    """The live figures of a run, requested at the end of each step within the block.

    `every` is the number of steps between two results; None means there are none. A block can be entered again for
    the next recording of `run`.
    """

    def __init__(self, run: profile, every: int | None = EVERY) -> None:
        if every is not None and every < 1:
            raise ValueError("`every` must be a positive number of steps, or None")
        self._run = run
        self._every = every or 0
        self._reader: subprocess.Popen[bytes] | None = None
        self._is_open = False

    def __enter__(self) -> Live:
        self._is_open = self._every > 0
        self._last: int | None = None
        """The step of the last request."""
        self._waiting = False
        self._answer = b""
        self._pause_until = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def newest(self, step: int) -> dict[str, float]:
        """Return the figures of the steps since the last result, empty for most steps; never raise.

        `step` is the training's own number of the step that ends.
        """
        if not self._is_open:
            return {}
        try:
            if self._waiting:
                return self._read()
            if self._last is None:
                self._last = step - 1
            if step - self._last >= self._every and perf_counter() >= self._pause_until:
                self._ask(step)
        except (OSError, ValueError) as error:
            self._give_up(error)
        return {}

    def tell(self, step: int, tell: Callable[[dict[str, float], int], None]) -> None:
        """Pass the newest figures, if any, to `tell` with the step; never raise."""
        newest_figures = self.newest(step)
        if not newest_figures:
            return
        begin = perf_counter()
        try:
            tell(newest_figures, step)
        except Exception as error:  # noqa: BLE001  whatever a tracker raises, training continues
            self._give_up(error)
        self._pause(perf_counter() - begin)

    def close(self) -> None:
        """Stop the process that computes the figures."""
        reader, self._reader = self._reader, None
        self._is_open = False
        if reader is not None:
            with reader:
                reader.kill()

    def _ask(self, step: int) -> None:
        self._last = step
        if self._reader is None:
            folder = self._run.recorded
            if folder is None:  # another rank is recorded, or none
                self._is_open = False
                return
            self._reader = _reader(folder)
        assert self._reader.stdin is not None
        self._reader.stdin.write(b"\n")
        self._waiting = True

    def _read(self) -> dict[str, float]:
        assert self._reader is not None
        assert self._reader.stdout is not None
        try:
            part = os.read(self._reader.stdout.fileno(), 1 << 16)
        except BlockingIOError:  # not yet
            return {}
        if not part:
            raise ValueError("the process that computes them has ended")
        self._answer += part
        if not self._answer.endswith(b"\n"):
            return {}
        result: Result = json.loads(self._answer)
        self._answer, self._waiting = b"", False
        self._pause(result["cost_s"])
        return figures(result, PREFIX) if "steps" in result else {}

    def _pause(self, cost: float) -> None:
        self._pause_until = max(self._pause_until, perf_counter()) + cost / SHARE

    def _give_up(self, error: Exception) -> None:
        say(f"Live values have stopped for the rest of this training run: {error}")
        self.close()


def _reader(folder: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*python("from advisor.watch.newest import main; main(sys.argv[1:])"), str(folder), str(os.getpid())],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is the program's
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process
