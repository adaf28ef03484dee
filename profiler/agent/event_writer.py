"""The output of one process: its ring for events, its facts file, and the cost of both."""

import json
import os
import posix
import sys
import time
from typing import Any

from . import ring as wire
from .files import append

clock = time.perf_counter_ns
_dumps = json.JSONEncoder(default=str).encode

RANK_RECORDS = 32768  # 2 MiB: a fifth of a second of the fastest loops, twice the recorder's interval
WORKER_RECORDS = 2048  # 128 KiB: a worker writes one record a batch


class EventWriter:
    """The ring and the facts file of this process.

    The first event of training opens them, so a process that trains nothing has none.
    """

    def __init__(self, folder: str, worker: bool) -> None:
        """Create both files.

        Raises:
            OSError: there is no room for them.
        """
        from .redact import known_secrets, redact_values  # compiles patterns that most processes do not need

        self.pid = posix.getpid()
        name = f"{self.pid}-{clock()}"
        self._facts = os.path.join(folder, name + ".facts")
        self._last: dict[tuple[str, Any], str] = {}
        """The last fact written, by kind and id."""
        self.writes = 0
        """The agent's own write() calls, to be subtracted from the program's."""
        self._secrets = known_secrets(os.environ, sys.argv)
        self._redact = redact_values
        append(self._facts, b"", os.O_CREAT | os.O_EXCL)
        try:
            self._ring = wire.RingWriter(
                os.path.join(folder, name + ".ring"), WORKER_RECORDS if worker else RANK_RECORDS
            )
        except BaseException:
            posix.unlink(self._facts)
            raise
        self.write = self._ring.write
        self.per_event_ns = self._calibrate()
        self.measured_ns = 0
        """Measured time of the rare, expensive work, ns: facts, allocator statistics, reading the model."""
        self.windows_ns = 0
        self.publish()

    def _calibrate(self) -> int:
        """Return the cost of one hooked call in ns: a frame, two clock reads, and a record of kind 0."""
        records: list[tuple[int, ...]] = []

        def hook() -> None:
            records.append((0, 0, clock(), clock(), 0, 0))
            self.write(*records.pop())

        def spent() -> int:
            begin = clock()
            for _ in range(20):
                hook()
            return (clock() - begin) // 20

        cost = min(spent() for _ in range(5))
        # Between two tensor operations the caches are cold: hooks timed in real loops took 2 to 3 times as long.
        return max(200, cost * 3)

    def fact(self, kind: str, body: dict[str, Any]) -> None:
        """Append one JSON line, unless the last fact of this kind and id was the same.

        A full disk, or an audit hook that forbids the file, loses the fact but never disturbs the program.
        """
        text = _dumps(body)
        if self._last.get((kind, body.get("id"))) == text:
            return
        self._last[kind, body.get("id")] = text
        # Keep the field names: one may equal the value of an option taken for a secret, such as `--sort-key`.
        text = _dumps({name: self._redact(value, self._secrets) for name, value in body.items()})
        line = _dumps({"kind": kind, "t": clock()})[:-1] + (", " + text[1:] if body else "}") + "\n"
        try:
            append(self._facts, line.encode())
            self.writes += 1
        except Exception:  # an audit hook may raise any exception
            return

    def publish(self) -> None:
        """Publish the agent's cost for the recorder."""
        self._ring.count(self.per_event_ns, self.measured_ns, self.windows_ns)
