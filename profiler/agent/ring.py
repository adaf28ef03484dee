"""The wire between a training process and the recorder: a ring of fixed-size records in a memory-mapped file.

One process writes, one reads. A record is written by a single `struct.pack_into`, its sequence number last, so a reader
that finds the number it expects has the whole record. Nobody waits for anybody: a writer that laps the reader overwrites,
and the reader counts what it lost.

The blocks of the file are reserved up front: writing to a sparse mapping on a full disk would end the program with SIGBUS.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

MAGIC = b"PTRING01"
HEADER_SIZE = 4096
# magic, record size, capacity, pid, parent pid, monotonic ns and unix ns of the same moment
_HEADER = struct.Struct("<8sIIIIqq")
# what the writer keeps up to date: ns an event costs, ns in rare and heavy things, ns in windows
_COUNTERS = struct.Struct("<qqq")
_COUNTERS_AT = 64
# start ns, end ns, a, b, c, d, kind, lane, id, sequence number
RECORD = struct.Struct("<qqqqqqHHIQ")

# Kinds, and what a, b, c, d hold.
FETCH = 1  # next() of a DataLoader iterator; id loader; a ready batches or -1 (no workers); b 1 if the epoch ended
ITER = 2  # iter() of a DataLoader; id loader; a 1 if it has workers
FORWARD = 3  # a root module; id root; a 1 training mode; b 1 gradients enabled; c 1 it is compiled
BACKWARD = 4  # a 0 backward(), 1 autograd.grad()
OPTIMIZER = 5  # id optimizer; a tags (schema.TAG_*) of the step that it ends
STEP = 6  # profiler.step() of the program; a tags as above
SAVE = 7  # torch.save
GC = 8  # a garbage collection; a generation
BATCH = 9  # one batch made by a dataset fetcher; id loader; a CPU ns; b collate ns; c samples; d files opened or -1
WINDOW = 10  # opening (a 0) or saving (a 1) a torch.profiler window
REGION = 11  # a named stretch of the program; id as in the fact "region"
GPU = 12  # a boundary of the step as the GPU reached it; id MARK_*; a GPU ns since the mark before, -1 after a gap

# Marks: the boundaries at which CUDA events are recorded.
MARK_FETCH_START, MARK_FETCH_END, MARK_FORWARD_START, MARK_FORWARD_END = 1, 2, 3, 4
MARK_BACKWARD_START, MARK_BACKWARD_END, MARK_OPTIMIZER_START, MARK_OPTIMIZER_END = 5, 6, 7, 8

Write = Callable[..., None]


class Event(NamedTuple):
    """One record. Times are nanoseconds of `time.perf_counter_ns`, the same clock in every process of a host."""

    start: int
    end: int
    a: int
    b: int
    c: int
    d: int
    kind: int
    lane: int
    """Thread: 0 is the main one."""
    id: int
    sequence: int


class Counters(NamedTuple):
    """What a writer says of its cost: so much an event, and the measured time of what is rare and heavy."""

    per_event_ns: int
    rare_ns: int
    windows_ns: int


class Writer:
    """The program's end. `write(thread, kind, start_ns, end_ns, id, a, b, c, d)` is a closure: attribute look-ups would
    cost as much as the record."""

    def __init__(self, path: str, capacity: int) -> None:
        """Raises OSError if there is no room or no mmap at `path`; `capacity` is a power of two, in records."""
        if capacity & (capacity - 1):
            raise ValueError("capacity must be a power of two")
        size = HEADER_SIZE + capacity * RECORD.size
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            _reserve(descriptor, size)
            self._map = mmap.mmap(descriptor, size)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        self.path = path
        _HEADER.pack_into(
            self._map,
            0,
            MAGIC,
            RECORD.size,
            capacity,
            os.getpid(),
            os.getppid(),
            time.perf_counter_ns(),
            time.time_ns(),
        )
        self._sequence = itertools.count(1)
        self.write: Write = _writer(self._map, capacity, self._sequence)

    def count(self, per_event_ns: int, rare_ns: int, windows_ns: int) -> None:
        """Publish what the hooks have cost so far."""
        _COUNTERS.pack_into(self._map, _COUNTERS_AT, per_event_ns, rare_ns, windows_ns)


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:  # macOS: write the zeros, which allocates as well
        os.write(descriptor, bytes(size))


def _writer(buffer: mmap.mmap, capacity: int, sequence: Any) -> Write:
    pack = RECORD.pack_into
    following = sequence.__next__  # atomic under the interpreter lock, so threads need no lock of ours
    mask = capacity - 1
    size = RECORD.size
    main = threading.main_thread().ident

    def write(
        thread: int, kind: int, start: int, end: int, id: int = 0, a: int = 0, b: int = 0, c: int = 0, d: int = 0
    ) -> None:
        number = following()
        lane = 0 if thread == main else (thread >> 8) % 0xFFFF + 1
        pack(buffer, HEADER_SIZE + (number & mask) * size, start, end, a, b, c, d, kind, lane, id & 0xFFFFFFFF, number)

    return write


class Reader:
    """The recorder's end; raises ValueError if the file is no ring of this version."""

    def __init__(self, path: str, cursor: int = 0) -> None:
        with open(path, "rb") as file:
            header = file.read(HEADER_SIZE)
            if len(header) < HEADER_SIZE or header[: len(MAGIC)] != MAGIC:
                raise ValueError(f"{path} is not a ring")
            _, record, self.capacity, self.pid, self.parent, self.clock_ns, self.unix_ns = _HEADER.unpack_from(header)
            size = HEADER_SIZE + self.capacity * record
            if record != RECORD.size or self.capacity <= 0 or os.fstat(file.fileno()).st_size < size:
                raise ValueError(f"{path} is damaged or of another version")
            self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        self.path = path
        self.cursor = cursor
        """The sequence number of the last record read."""
        self.lost = 0

    def counters(self) -> Counters:
        """What the writer last published."""
        return Counters(*_COUNTERS.unpack_from(self._map, _COUNTERS_AT))

    def read(self) -> list[Event]:
        """Every whole record written since the last call, in order; laps are added to `lost`."""
        events: list[Event] = []
        while True:
            before = len(events)
            self._read_run(events)
            if len(events) == before and not self._skip_lap():
                return events

    def _read_run(self, events: list[Event]) -> None:
        """Read on while the sequence is unbroken."""
        mask = self.capacity - 1
        unpack = RECORD.unpack_from
        first = self.cursor
        found: list[Event] = []
        for number in range(first + 1, first + self.capacity + 1):
            event = Event._make(unpack(self._map, HEADER_SIZE + (number & mask) * RECORD.size))
            if event.sequence != number:
                break
            found.append(event)
        if not found:
            return
        # A writer that came round meanwhile may have torn the oldest of them: what it has reached by now is void.
        newest = self._newest()
        safe_from = newest - self.capacity + 2
        torn = max(0, min(len(found), safe_from - found[0].sequence))
        self.lost += torn
        events.extend(found[torn:])
        self.cursor = found[-1].sequence

    def _newest(self) -> int:
        """The highest sequence number around the writer's position, found from the cursor in O(log capacity)."""
        mask = self.capacity - 1
        unpack = struct.Struct("<Q").unpack_from
        at = RECORD.size - 8
        best = self.cursor
        step = 1
        while step <= self.capacity:
            (number,) = unpack(self._map, HEADER_SIZE + ((self.cursor + step) & mask) * RECORD.size + at)
            if number > best:
                best = number
            step *= 2
        return best

    def _skip_lap(self) -> bool:
        """If the next slot already holds a later lap, go to the oldest record that is still whole."""
        unpack = struct.Struct("<Q").unpack_from
        at = RECORD.size - 8
        mask = self.capacity - 1
        (number,) = unpack(self._map, HEADER_SIZE + ((self.cursor + 1) & mask) * RECORD.size + at)
        if (
            number <= self.cursor + 1
            or number > self.cursor + (1 << 40)
            or (number & mask) != ((self.cursor + 1) & mask)
        ):
            return False
        # Leave a margin of an eighth, so that the writer does not overtake us again while we read.
        newest = max(unpack(self._map, HEADER_SIZE + slot * RECORD.size + at)[0] for slot in range(self.capacity))
        target = max(self.cursor, newest - self.capacity + self.capacity // 8)
        self.lost += target - self.cursor
        self.cursor = target
        return True

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()


if sys.byteorder != "little":  # the records are little-endian; nobody trains on a big-endian machine
    raise ImportError("profile-train needs a little-endian machine")
