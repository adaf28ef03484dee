"""The channel from a training process to the recorder: a ring of records in a memory-mapped file.

The records have a fixed size. One process writes, one reads. A single `struct.pack_into` writes a record, its sequence
number last. Neither side ever waits: a writer that laps the reader overwrites records, and the reader counts those it
lost (`Reader` describes how it detects them).

The blocks of the file are reserved up front: writing to a sparse mapping on a full disk would end the program with
SIGBUS.
"""

import ctypes
import errno
import functools
import itertools
import mmap
import os
import posix
import struct
import sys
import threading
import time
import weakref
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

from .files import contents

MAGIC = b"PTRING01"
HEADER_SIZE = 4096
# magic, record size, capacity, pid, parent pid, monotonic ns and unix ns of the same moment
_HEADER = struct.Struct("<8sIIIIqq")
# updated by the writer: ns per event, ns of rare and expensive work, ns of windows
_COUNTERS = struct.Struct("<qqq")
_COUNTERS_AT = 64
# start ns, end ns, a, b, c, d, kind, lane, id, sequence number
RECORD = struct.Struct("<qqqqqqHHIQ")

# Kinds of records, and the meaning of a, b, c and d.
FETCH = 1  # next() of a DataLoader iterator; id loader; a ready batches or -1 (no workers); b 1 if the epoch ended
ITER = 2  # iter() of a DataLoader; id loader; a 1 if it has workers
FORWARD = 3  # a root module; id root; a 1 training mode; b 1 gradients enabled; c 1 it is compiled
BACKWARD = 4  # a 0 backward(), 1 autograd.grad()
# id optimizer; a tags (schema.TAG_*) of the step that it ends; b 1 inside the step of another optimizer; c 1 for the
# replay of a CUDA graph that contains it, and possibly other phases of the step
OPTIMIZER = 5
STEP = 6  # profiler.step() of the program; a tags as above
SAVE = 7  # torch.save
GC = 8  # a garbage collection; a generation
BATCH = 9  # one batch made by a dataset fetcher; id loader; a CPU ns; b collate ns; c samples; d files opened or -1
REGION = 11  # a named region of the program; id as in the fact "region"
# a boundary of the step that a GPU has reached; id MARK_*; a GPU ns since the previous mark on that device, -1 after a
# gap; b device; c for the first boundary after a gap that began at a boundary, GPU ns between the two, else 0
GPU = 12

# Marks: the boundaries at which CUDA events are recorded.
MARK_FETCH_START, MARK_FETCH_END, MARK_FORWARD_START, MARK_FORWARD_END = 1, 2, 3, 4
MARK_BACKWARD_START, MARK_BACKWARD_END, MARK_OPTIMIZER_START, MARK_OPTIMIZER_END = 5, 6, 7, 8
MARK_STEP = 9  # profiler.step() of the program
# Not boundaries: the start of event recording; and, at the end, that the GPU has reached all events.
MARK_FIRST, MARK_ALL_REACHED = 0, 10

# Fewer threads than this write at the same moment; see Reader.
GUARD = 8

Write = Callable[..., None]


class Event(NamedTuple):
    """A record; times are ns of `time.perf_counter_ns`, the same clock in every process of a host."""

    start: int
    end: int
    a: int
    b: int
    c: int
    d: int
    kind: int
    lane: int
    """Number derived from the thread; 0 is the main thread."""
    id: int
    sequence: int


class Counters(NamedTuple):
    """The cost a writer reports: ns per event, and measured ns of rare, expensive work and of windows."""

    per_event_ns: int
    rare_ns: int
    windows_ns: int


class RingWriter:
    """The program's end of the ring.

    `write(thread, kind, start_ns, end_ns, id, a, b, c, d)` is a closure: attribute look-ups would cost as much as the
    record.
    """

    def __init__(self, path: str, capacity: int) -> None:
        """Create the ring at `path`; `capacity` counts records.

        Raises:
            ValueError: `capacity` is not a power of two.
            OSError: there is no room or no mmap at `path`.
        """
        if capacity < 1 or capacity & (capacity - 1):
            raise ValueError("capacity must be a power of two")
        size = HEADER_SIZE + capacity * RECORD.size
        unfinished_path = path + ".new"  # a reader of the folder must not find a ring without its header
        descriptor = posix.open(unfinished_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _reserve(descriptor, size)
            self._map = _mapped(descriptor, size)
            moments = time.perf_counter_ns(), time.time_ns()
            _HEADER.pack_into(self._map, 0, MAGIC, RECORD.size, capacity, posix.getpid(), posix.getppid(), *moments)
            posix.rename(unfinished_path, path)
        except BaseException:
            posix.unlink(unfinished_path)
            raise
        finally:
            posix.close(descriptor)
        self._sequence = itertools.count(1)
        self.write: Write = _writer(self._map, capacity, self._sequence)

    def count(self, per_event_ns: int, rare_ns: int, windows_ns: int) -> None:
        """Publish the cost of the hooks so far."""
        _COUNTERS.pack_into(self._map, _COUNTERS_AT, per_event_ns, rare_ns, windows_ns)


def _mapped(descriptor: int, size: int) -> Any:
    """Map a file without keeping a descriptor open, which the program might count or find."""
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, trackfd=False)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    array = (ctypes.c_char * size).from_address(address)
    weakref.finalize(array, libc.munmap, address, size).atexit = False  # hooks may write until the process ends
    return memoryview(array).cast("B")


def _reserve(descriptor: int, size: int) -> None:
    if size > _file_size_limit():  # trying would end a program that does not handle SIGXFSZ
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    posix.posix_fallocate(descriptor, 0, size)


def _file_size_limit() -> float:
    """Return the maximum file size of this process in bytes; infinity if unlimited or unknown.

    The module `resource` is not used, because the program might have its own module of that name.
    """
    try:
        lines = contents("/proc/self/limits").splitlines()
        (limit,) = (line.split()[3] for line in lines if line.startswith(b"Max file size"))
        return float(limit.replace(b"unlimited", b"inf"))
    except (OSError, ValueError):
        return float("inf")


def _writer(buffer: Any, capacity: int, sequence: Any) -> Write:
    pack = RECORD.pack_into
    next_number = sequence.__next__  # atomic under the interpreter lock, so threads need no lock of ours
    mask = capacity - 1
    size = RECORD.size
    main_ident = threading.main_thread().ident

    def write(
        thread: int, kind: int, start: int, end: int, id: int = 0, a: int = 0, b: int = 0, c: int = 0, d: int = 0
    ) -> None:
        number = next_number()
        lane = 0 if thread == main_ident else (thread >> 8) % 0xFFFF + 1
        pack(buffer, HEADER_SIZE + (number & mask) * size, start, end, a, b, c, d, kind, lane, id & 0xFFFFFFFF, number)

    return write


class Reader:
    """The recorder's end of the ring.

    A record is accepted only if it is whole, which its number alone does not show: a writer that laps the reader may be
    overwriting a record while it is copied. So the reader first copies the records and then checks the numbers around
    them. Writers take numbers in order, and each number belongs to the slot after the previous one. Before a writer
    touches the slot of record n again, the GUARD - 1 slots before it have received their next numbers, except slots
    whose thread is between taking a number and writing the record. Fewer than GUARD threads are at that point at once.
    Hence

    - if none of the GUARD slots before the copied records shows a later lap, no copied record was touched;
    - else the reader finds the newest number, and everything a whole ring minus GUARD before it is void.

    In both cases the check follows the copy, so it sees at least what the copy saw: a writer's stores become visible in
    order (x86), or together, because a record is one cache line (ARM, in practice).

    `lost` counts every number whose record was not read: void records, laps, and holes. A hole is left by a thread that
    is interrupted for good (Ctrl-C) between taking a number and writing the record.

    Raises:
        ValueError: the file is not a ring of this version.
    """

    def __init__(self, path: str, cursor: int = 0) -> None:
        with open(path, "rb") as file:
            header = file.read(HEADER_SIZE)
            if len(header) < HEADER_SIZE or header[: len(MAGIC)] != MAGIC:
                raise ValueError(f"{path} is not a ring")
            _, record_size, self.capacity, self.pid, self.parent, self.clock_ns, self.unix_ns = _HEADER.unpack_from(
                header
            )
            size = HEADER_SIZE + self.capacity * record_size
            is_whole = record_size == RECORD.size and self.capacity > 0 and not self.capacity & (self.capacity - 1)
            if not is_whole or os.fstat(file.fileno()).st_size < size:
                raise ValueError(f"{path} is damaged, or was written by another version of profile-train")
            self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        self.cursor = cursor
        """The sequence number of the last record read or given up."""
        self.lost = 0
        self._hole = 0
        """The number that was missing at the last read although later ones were present."""

    def counters(self) -> Counters:
        """Return the cost that the writer last published."""
        return Counters(*_COUNTERS.unpack_from(self._map, _COUNTERS_AT))

    def read(self) -> list[Event]:
        """Return every whole record written since the last call, in order, up to about one ring of them."""
        events: list[Event] = []
        while len(events) < self.capacity:
            next_number = self.cursor + 1
            if self._number(next_number) == next_number:
                self._take(self._last_of_run(), events)
            elif not self._skip():
                break
        return events

    def _number(self, position: int) -> int:
        """Return the number now in the slot of record `position`; 0 if it is impossible for that slot."""
        slot = position & (self.capacity - 1)
        (number,) = _NUMBER.unpack_from(self._map, HEADER_SIZE + slot * RECORD.size)
        return number if number & (self.capacity - 1) == slot and number < self.cursor + _ABSURD else 0

    def _last_of_run(self) -> int:
        """Return the last record of the unbroken run after the cursor, in O(log capacity) look-ups."""
        numbers = range(self.cursor + 1, self.cursor + self.capacity + 1)
        return self.cursor + bisect_left(numbers, True, key=lambda number: self._number(number) != number)

    def _take(self, last: int, events: list[Event]) -> None:
        """Copy the records after the cursor up to `last`; those that a writer may have touched meanwhile are lost."""
        first = self.cursor + 1
        data = self._copy(first, last)
        if all(self._number(first - offset) < first for offset in range(1, GUARD + 1)):
            last_void = self.cursor
        else:
            last_void = self._newest() - self.capacity + GUARD
        for event in map(_as_event, RECORD.iter_unpack(data)):
            number = self.cursor + 1
            if number > last_void:
                if event.sequence != number:
                    return
                events.append(event)
            else:
                self.lost += 1
            self.cursor = number

    def _copy(self, first: int, last: int) -> bytes:
        begin, end = first & (self.capacity - 1), (last & (self.capacity - 1)) + 1
        base, size = HEADER_SIZE, RECORD.size
        if begin < end:
            return self._map[base + begin * size : base + end * size]
        return self._map[base + begin * size :] + self._map[base : base + end * size]

    def _newest(self) -> int:
        """Return the highest number in the ring, looking at all of them."""
        return max(self._number(slot) for slot in range(self.capacity))

    def _skip(self) -> bool:
        """Skip a lap or a hole that will never be read. Return False if the next record is just not written yet."""
        next_number = self.cursor + 1
        highest = max(self._number(next_number + offset) for offset in range(GUARD))
        if highest <= next_number:
            return highest == next_number
        if highest < self.cursor + self.capacity:
            # A thread may be about to write this record: it is a hole only if it is still missing at the next read.
            target = next_number
            if self._hole != next_number:
                self._hole = next_number
                return False
        else:
            # A margin of an eighth, so that the writer does not lap the reader again during the read.
            target = max(next_number, self._newest() - self.capacity + self.capacity // 8)
        self.lost += target - self.cursor
        self.cursor = target
        return True

    def close(self) -> None:
        """Unmap the file; what was written stays readable."""
        self._map.close()


_NUMBER = struct.Struct(f"<{RECORD.size - 8}xQ")

# More records than a process can write; a damaged file must not move the cursor that far.
_ABSURD = 1 << 48

_as_event = functools.partial(tuple.__new__, Event)


if sys.byteorder != "little":  # the records are little-endian; nobody trains on a big-endian machine
    raise ImportError("profile-train needs a little-endian machine")
