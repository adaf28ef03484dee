"""A command under measurement: start it, give it turns, read what it uses, and end it."""

import json
import os
import select
import shutil
import subprocess
import time

from processes import read
from turns import END, GO

LIMIT = 120
"""Seconds that anything but a block may take before it counts as hung."""


class Program:
    """One process of the loop, or one per rank."""

    def __init__(self, way, loop, folder, steps, seconds):
        """Start the command; a block has `steps` steps, or as many as begin within `seconds`."""
        self.folder = folder
        folder.mkdir()
        self._limit = LIMIT + seconds
        self._ranks = range(loop.ranks)
        for rank in self._ranks:
            os.mkfifo(folder / f"go-{rank}")
            os.mkfifo(folder / f"done-{rank}")
        self._go = [os.open(folder / f"go-{rank}", os.O_RDWR) for rank in self._ranks]
        self._done = [os.open(folder / f"done-{rank}", os.O_RDWR) for rank in self._ranks]
        self._line = [str(word) for word in way.line(loop, folder, [loop.name, folder, steps, seconds])]
        self._output = (folder / "output").open("wb")
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            self._line, cwd=folder, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT
        )

    def wait_turn(self):
        """Wait until the program is ready to run a block."""
        deadline = time.monotonic() + self._limit
        for done in self._done:
            # Wait in short intervals: a program that ends before its turn would otherwise be waited for up to the
            # limit.
            while not select.select([done], [], [], 0.5)[0]:
                if time.monotonic() > deadline:
                    self._fail("did not come to the end of its block")
                if self._process.poll() is not None:
                    self._fail(f"ended with {self._process.returncode}")
            os.read(done, 1)

    def block(self):
        """Let the program run a block."""
        self._tell(GO)
        self.wait_turn()

    def read(self):
        """Return what the program's processes have used so far; call it between two blocks."""
        return read(self._process.pid, [self._pid(rank) for rank in self._ranks])

    def finish(self):
        """Let the program end; return what its ranks measured, and how long the command took to start and to end."""
        self._tell(END)
        try:
            self._process.wait(self._limit)
        except subprocess.TimeoutExpired:
            self._fail("did not end")
        ended = time.monotonic()
        results = [self.folder / f"result-{rank}" for rank in self._ranks]
        if self._process.returncode or not all(result.exists() for result in results):
            self._fail(f"ended with {self._process.returncode}")
        ranks = [json.loads(result.read_text()) for result in results]
        first = ranks[0]
        self._close()
        return {
            "blocks": [_merged(blocks) for blocks in zip(*(rank["blocks"] for rank in ranks), strict=True)],
            "to_first_line": first["first_line"] - self._started,
            "to_torch": first["imported"] - self._started,
            "run": first["loop_end"] - self._started,
            "end": ended - first["released"],
        }

    @property
    def pid(self):
        """Return the PID of the first rank, which may not be the command itself."""
        return self._pid(0)

    def _pid(self, rank):
        return int((self.folder / f"pid-{rank}").read_text())

    def _tell(self, what):
        for go in self._go:
            os.write(go, what)

    def _fail(self, how):
        self._process.kill()
        self._process.wait()
        said = (self.folder / "output").read_text(errors="replace")[-2000:]
        raise SystemExit(f"{' '.join(self._line)}\n{how}:\n{said}")

    def _close(self):
        self._output.close()
        for pipe in (*self._go, *self._done):
            os.close(pipe)
        shutil.rmtree(self.folder)


def _merged(blocks):
    """Merge one block of all ranks."""
    walls = [wall for block in blocks for wall in block["walls"]]
    return {"walls": walls, "cpu": sum(block["cpu"] for block in blocks) / len(blocks)}
