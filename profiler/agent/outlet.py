"""Where a process's events and facts go: its ring, its facts file, and what both have cost."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from . import ring as wire

clock = time.perf_counter_ns

RANK_RECORDS = 32768  # 2 MiB: a fifth of a second of the fastest loops, twice the recorder's interval
_APPEND = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)

WORKER_RECORDS = 2048  # 128 KiB: a worker writes one record a batch


class Outlet:
    """The ring and the facts file of this process. Opened by its first event: what trains nothing has none."""

    def __init__(self, folder: str, worker: bool) -> None:
        """Raises OSError when there is no room."""
        from .redact import known_secrets, redact_values  # it compiles its patterns; most processes need none

        self.pid = os.getpid()
        name = f"{self.pid}-{clock()}"
        self._facts = os.path.join(folder, name + ".facts")
        self._told: dict[tuple[str, Any], str] = {}
        """The last fact of each kind and id."""
        self.writes = 0
        """Calls of ours to write(), which are none of the program's."""
        self._secrets = known_secrets(os.environ, sys.argv)
        self._redact = redact_values
        os.close(os.open(self._facts, _APPEND | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            self._ring = wire.Writer(os.path.join(folder, name + ".ring"), WORKER_RECORDS if worker else RANK_RECORDS)
        except BaseException:
            os.unlink(self._facts)
            raise
        self.write = self._ring.write
        self.per_event_ns = self._calibrate()
        self.measured_ns = 0
        """Time of the rare, heavy things, each measured: facts, allocator statistics, look at the model."""
        self.windows_ns = 0
        self.publish()

    def _calibrate(self) -> int:
        """What one hooked call costs here and now: a wrapped no-op against the bare one, ns. Records have kind 0."""

        waiting: list[tuple[int, ...]] = []

        def bare() -> None:
            return None

        def wrapped() -> None:
            begin = clock()
            bare()
            waiting.append((0, 0, begin, clock(), 0, 0))
            self.write(*waiting.pop())

        costs = []
        for function in (bare, wrapped):
            best = None
            for _ in range(5):
                begin = clock()
                for _ in range(20):
                    function()
                spent = (clock() - begin) // 20
                best = spent if best is None else min(best, spent)
            costs.append(best or 0)
        # Between two tensor operations the caches are cold: hooks timed in real loops took 2 to 3 times as long.
        return max(200, (costs[1] - costs[0]) * 3)

    def fact(self, kind: str, body: dict[str, Any]) -> None:
        """Append one JSON line, unless it says what the last one of this kind and id said. A full disk loses the fact,
        never the program. The file is not kept open: a program that closes all descriptors may get that number anew.
        """
        told = json.dumps(body, default=str)
        if self._told.get((kind, body.get("id"))) == told:
            return
        self._told[kind, body.get("id")] = told
        # The names of the fields are ours, and stay if one is also the value of a `--sort-key`.
        told = json.dumps({name: self._redact(each, self._secrets) for name, each in body.items()}, default=str)
        line = json.dumps({"kind": kind, "t": clock()})[:-1] + (", " + told[1:] if body else "}") + "\n"
        try:
            file = os.open(self._facts, _APPEND)
            try:
                os.write(file, line.encode())
                self.writes += 1
            finally:
                os.close(file)
        except OSError:
            return

    def publish(self) -> None:
        """Let the recorder see what we cost."""
        self._ring.count(self.per_event_ns, self.measured_ns, self.windows_ns)

    def close(self) -> None:
        """The last count; the files stay for the recorder."""
        self.publish()
