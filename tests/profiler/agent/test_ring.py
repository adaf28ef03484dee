import errno
import gc
import mmap
import os
import posix
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.agent import ring

CAPACITY = 64
I64 = st.integers(-(2**63), 2**63 - 1)
MAIN = threading.main_thread().ident


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "1-1.ring")


@pytest.fixture
def writer(path):
    return ring.RingWriter(path, CAPACITY)


@pytest.fixture
def reader(writer, path):
    return ring.Reader(path)


def put(writer, n):
    """Write a record whose fields all derive from its number, so that a torn record shows."""
    writer.write(MAIN, n % 7 + 1, n, n + 1, n & 0xFFFF, n * 3, -n, n * 5, -n * 7)


def whole(event):
    n = event.sequence
    return event == (n, n + 1, n * 3, -n, n * 5, -n * 7, n % 7 + 1, 0, n & 0xFFFF, n)


class Pen:
    """A writer of consistent records that counts them."""

    def __init__(self, writer):
        self.writer = writer
        self.written = 0

    def __call__(self, count):
        for _ in range(count):
            self.written += 1
            put(self.writer, self.written)


# ---- round trip ----


def test_ring_keeps_no_file_descriptor_open(path):
    before = os.listdir("/proc/self/fd")
    writer = ring.RingWriter(path, CAPACITY)
    assert os.listdir("/proc/self/fd") == before
    put(writer, 1)
    (event,) = ring.Reader(path).read()
    assert whole(event)


def test_ring_without_a_writer_is_unmapped(path):
    ring.RingWriter(path, CAPACITY)
    gc.collect()
    assert path not in Path("/proc/self/maps").read_text()


@given(times=st.tuples(I64, I64), values=st.tuples(I64, I64, I64, I64), kind=st.integers(0, 0xFFFF), id=st.integers(0))
def test_every_field_round_trips(tmp_path_factory, times, values, kind, id):
    path = str(tmp_path_factory.mktemp("ring") / "1.ring")
    writer, reader = ring.RingWriter(path, 16), ring.Reader(path)
    writer.write(MAIN, kind, *times, id, *values)
    (event,) = reader.read()
    assert (event.start, event.end) == times
    assert (event.a, event.b, event.c, event.d) == values
    assert (event.kind, event.lane, event.id, event.sequence) == (kind, 0, id & 0xFFFFFFFF, 1)
    reader.close()


def test_omitted_fields_are_zero(writer, reader):
    writer.write(MAIN, ring.SAVE, 10, 20)
    (event,) = reader.read()
    assert (event.a, event.b, event.c, event.d, event.id) == (0, 0, 0, 0, 0)


def test_each_thread_has_its_own_lane(writer, reader):
    # thread ids as glibc makes them: addresses that differ in their high bits
    for thread in (MAIN, 0x7F0000001700, 0x7F0000002700, 0x7F0000001700):
        writer.write(thread, 1, 0, 0)
    lanes = [event.lane for event in reader.read()]
    assert lanes[0] == 0
    assert 0 not in lanes[1:]
    assert lanes[1] == lanes[3] != lanes[2]


def test_the_header_names_process_and_clocks(writer, reader):
    assert (reader.pid, reader.parent, reader.capacity) == (os.getpid(), os.getppid(), CAPACITY)
    assert reader.clock_ns > 0
    assert reader.unix_ns > 1_600_000_000_000_000_000


def test_counters_are_those_published_last(writer, reader):
    assert reader.counters() == (0, 0, 0)
    writer.count(200, 5, 7)
    writer.count(300, 6, 8)
    assert reader.counters() == ring.Counters(per_event_ns=300, rare_ns=6, windows_ns=8)


def test_each_record_is_read_once_after_it_is_written(writer, reader):
    pen = Pen(writer)
    assert reader.read() == []
    for count in (1, 2, 40, 30, 0, 3):
        pen(count)
        assert len(reader.read()) == count
        assert reader.read() == []
    assert reader.lost == 0


def test_second_reader_continues_at_the_cursor(writer, reader, path):
    pen = Pen(writer)
    pen(5)
    reader.read()
    pen(3)
    other = ring.Reader(path, cursor=reader.cursor)
    assert [event.sequence for event in other.read()] == [6, 7, 8]
    assert (other.cursor, other.lost) == (8, 0)


# ---- laps ----


@pytest.mark.parametrize("count", [CAPACITY, CAPACITY + 1, CAPACITY * 2 - 1, CAPACITY * 2, CAPACITY * 5 + 3])
def test_a_lagging_reader_counts_what_it_lost_and_keeps_the_newest(writer, reader, count):
    Pen(writer)(count)
    events = reader.read()
    assert all(map(whole, events))
    assert len(events) + reader.lost == count == reader.cursor
    assert [event.sequence for event in events] == list(range(count - len(events) + 1, count + 1))
    assert len(events) >= CAPACITY * 3 // 4


def test_a_reader_just_in_time_loses_nothing(writer, reader):
    pen = Pen(writer)
    for _ in range(10):
        pen(CAPACITY - ring.GUARD)
        reader.read()
    assert reader.lost == 0


class Interrupted(mmap.mmap):
    """The reader's map; a writer continues during each copy of it: the first half is old, the second new."""

    meanwhile = None

    def __getitem__(self, key):
        if self.meanwhile is None or not isinstance(key, slice):
            return super().__getitem__(key)
        begin, end, _ = key.indices(len(self))
        middle = (begin + end) // 2 // 8 * 8
        first = super().__getitem__(slice(begin, middle))
        self.meanwhile()
        second = super().__getitem__(slice(middle, end))
        self.meanwhile()
        return first + second


def interruptible(path, **how):
    reader = ring.Reader(path, **how)
    reader.close()
    with open(path, "rb") as file:
        reader._map = Interrupted(file.fileno(), 0, access=mmap.ACCESS_READ)
    return reader


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 90), st.lists(st.integers(0, 200), max_size=4)), min_size=1, max_size=12))
def test_concurrent_writes_never_tear_records(tmp_path_factory, rounds):
    path = str(tmp_path_factory.mktemp("ring") / "1.ring")
    pen, reader = Pen(ring.RingWriter(path, CAPACITY)), interruptible(path)
    events = []
    for before, during in rounds:
        pen(before)
        left = iter(during)
        reader._map.meanwhile = lambda left=left: pen(next(left, 0))
        events += reader.read()
    reader._map.meanwhile = None
    while more := reader.read():
        events += more
    assert all(map(whole, events))
    sequences = [event.sequence for event in events]
    assert sequences == sorted(set(sequences))
    assert len(events) + reader.lost == pen.written == reader.cursor


@pytest.mark.parametrize("overwritten", [8, 16, 32, 56])
def test_partly_overwritten_record_is_not_read(writer, path, overwritten):
    reader = ring.Reader(path, cursor=10)
    Pen(writer)(CAPACITY + 10)
    # Number CAPACITY + 11 overwrites the slot of number 11: its first bytes are there, the number is still the old one.
    at = ring.HEADER_SIZE + 11 * ring.RECORD.size
    writer._map[at : at + overwritten] = b"\xff" * overwritten
    events = reader.read()
    assert all(map(whole, events))
    assert len(events) + reader.lost == CAPACITY


@pytest.mark.parametrize("hole", range(1, 10))
def test_missing_record_does_not_block_the_reader(writer, reader, hole):
    pen = Pen(writer)
    pen(hole - 1)
    next(writer._sequence)  # Ctrl-C between taking the number and writing the record
    pen.written += 1
    pen(9)
    assert [event.sequence for event in reader.read()] == list(range(1, hole))
    assert [event.sequence for event in reader.read()] == list(range(hole + 1, hole + 10))
    assert reader.lost == 1


def test_reader_waits_for_a_late_record(writer, reader):
    put(writer, 1)
    taken = next(writer._sequence)
    put(writer, 3)
    assert [event.sequence for event in reader.read()] == [1]
    ring.RECORD.pack_into(writer._map, ring.HEADER_SIZE + 2 * ring.RECORD.size, *[0] * 9, taken)
    assert [event.sequence for event in reader.read()] == [2, 3]
    assert reader.lost == 0


WRITE_IN_BURSTS = """
import random, sys, threading, time
from profiler.agent import ring
path, capacity, count, seed = sys.argv[1], *map(int, sys.argv[2:])
main = threading.main_thread().ident
write = ring.RingWriter(path, capacity).write
chance = random.Random(seed)
n = 0
while n < count:
    for _ in range(min(chance.choice((1, 5, capacity // 2, capacity * 3)), count - n)):
        n += 1
        write(main, n % 7 + 1, n, n + 1, n & 0xFFFF, n * 3, -n, n * 5, -n * 7)
    time.sleep(0.0005)
print("done")
"""


@pytest.mark.parametrize("capacity", [64, 4096])
@pytest.mark.process
def test_records_of_another_process_are_read_whole_or_counted_lost(path, capacity):
    count = 150_000
    arguments = [path, str(capacity), str(count), "7"]
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_IN_BURSTS, *arguments], cwd=Path(__file__).parents[3], stdout=subprocess.PIPE
    )
    with process:
        while not os.path.exists(path):
            assert process.poll() is None
            time.sleep(0.005)
        reader = ring.Reader(path)
        events = []
        while process.poll() is None:
            events += reader.read()
            time.sleep(0.001)
        assert process.stdout.read() == b"done\n"
    while more := reader.read():
        events += more
    assert all(map(whole, events))
    assert len(events) + reader.lost == count == reader.cursor
    sequences = [event.sequence for event in events]
    assert sequences == sorted(set(sequences))


def test_threads_share_a_writer(path):
    writer = ring.RingWriter(path, 1 << 14)
    reader = ring.Reader(path)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [
            threading.Thread(target=lambda k=k: [writer.write(0, 1, k, i) for i in range(2000)]) for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    events = reader.read()
    assert len(events) == 8000
    for k in range(4):
        assert [event.end for event in events if event.start == k] == list(range(2000))


# ---- files that are not rings ----


def test_foreign_and_damaged_files_are_refused(writer, path, tmp_path):
    good = Path(path).read_bytes()
    header = bytearray(good[: ring.HEADER_SIZE])
    capacity_at = 12
    odd = bytearray(good)
    struct.pack_into("<I", odd, capacity_at, CAPACITY - 1)
    huge = bytearray(good)
    struct.pack_into("<I", huge, capacity_at, 2**31)
    none = bytearray(good)
    struct.pack_into("<I", none, capacity_at, 0)
    wider = bytearray(good) + bytes(len(good))
    struct.pack_into("<I", wider, 8, ring.RECORD.size + 8)
    files = {
        "empty": b"",
        "short": good[:100],
        "header only": header,
        "cut": good[:-1],
        "zeros": bytes(len(good)),
        "foreign": b"\x7fELF" + good[4:],
        "newer": b"PTRING02" + good[8:],
        "other records": wider,
        "odd capacity": odd,
        "huge capacity": huge,
        "no capacity": none,
    }
    for name, content in files.items():
        other = tmp_path / name
        other.write_bytes(content)
        with pytest.raises(ValueError, match=name):  # the message contains the path
            ring.Reader(str(other))


def test_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(OSError, match="nothing"):
        ring.Reader(str(tmp_path / "nothing"))


@settings(deadline=None)
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=20))
def test_a_damaged_ring_is_refused_or_read_without_an_error(tmp_path_factory, flips):
    path = tmp_path_factory.mktemp("ring") / "1.ring"
    Pen(ring.RingWriter(str(path), CAPACITY))(100)
    content = bytearray(path.read_bytes())
    for where, mask in flips:  # half of them in the header's first bytes, half in the records
        at = int(where * 2 * 88) if where < 0.5 else int((where * 2 - 1) * (len(content) - 4096)) + 4096
        content[at] ^= mask
    path.write_bytes(content)
    try:
        reader = ring.Reader(str(path))
    except ValueError:
        return
    reader.counters()
    count = sum(len(reader.read()) for _ in range(3))
    assert 0 <= count <= CAPACITY * 3
    assert reader.cursor < 2**63
    assert reader.lost >= 0


# ---- creating a ring ----


@pytest.mark.parametrize("capacity", [0, -4, 3, 100])
def test_capacity_must_be_a_power_of_two(path, capacity):
    with pytest.raises(ValueError, match="power of two"):
        ring.RingWriter(path, capacity)


def test_full_disk_raises_oserror_and_leaves_no_file(path, tmp_path, monkeypatch):
    def full(descriptor, offset, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(posix, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        ring.RingWriter(path, CAPACITY)
    assert os.listdir(tmp_path) == []


def test_ring_file_appears_only_when_complete(path, monkeypatch):
    """A process that lists the folder during creation must not find a file without a header."""
    plain = os.posix_fallocate
    seen = []

    def reserve(descriptor, offset, size):
        plain(descriptor, offset, size)
        seen.append(os.path.exists(path))

    monkeypatch.setattr(posix, "posix_fallocate", reserve)
    ring.RingWriter(path, CAPACITY)
    assert seen == [False]
    assert ring.Reader(path).read() == []


def test_disk_blocks_of_the_ring_are_reserved(writer, path):
    status = os.stat(path)
    assert status.st_blocks * 512 >= status.st_size == ring.HEADER_SIZE + CAPACITY * ring.RECORD.size
    assert status.st_mode & 0o077 == 0
