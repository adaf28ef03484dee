"""The timed program's end of the pipes: it waits for its turn, times its steps and writes the result."""

import json
import os
import time

from loops import FEWEST

GO, END = b".", b"x"


class Turns:
    """Blocks on request. On GO, the program runs another block: `steps` steps, or as many as fit into `seconds`. On
    END, it writes `result-RANK` into the folder and ends.

    The result holds the monotonic time of the script's first line, of the end of torch's import and of the end of its
    loop. For every block, it holds each step's wall time and the CPU time of this process per step. All in seconds.
    """

    def __init__(self, folder, steps, seconds, first_line, imported):
        rank = int(os.environ.get("RANK", 0))
        self._steps = steps
        self._seconds = seconds
        self._times = {"first_line": first_line, "imported": imported}
        self._blocks = []
        self._walls = []
        (folder / f"pid-{rank}").write_text(str(os.getpid()))
        self._go = (folder / f"go-{rank}").open("rb", 0)
        self._done = (folder / f"done-{rank}").open("wb", 0)
        self._result = folder / f"result-{rank}"

    def begin(self):
        """Wait for an order; return True to run a block, False to end."""
        self._close_block()
        self._times["loop_end"] = time.monotonic()
        self._done.write(b".")
        order = self._go.read(1)
        if not order:
            raise SystemExit("the benchmark is gone")
        if order == END:
            self._leave()
            return False
        self._walls = []
        self._cpu = time.process_time()
        self._last = time.perf_counter()
        self._until = self._last + self._seconds
        return True

    def step(self):
        """Record the end of a step; return False if it was the last of its block."""
        now = time.perf_counter()
        self._walls.append(now - self._last)
        self._last = now
        count = len(self._walls)
        return count < self._steps and (now < self._until or count < FEWEST)

    def _close_block(self):
        if self._walls:
            cpu = (time.process_time() - self._cpu) / len(self._walls)
            self._blocks.append({"walls": self._walls, "cpu": cpu})

    def _leave(self):
        measured = {**self._times, "released": time.monotonic(), "blocks": self._blocks}
        self._result.write_text(json.dumps(measured))
