"""Sample the resource use of the program's processes and of the machine.

This happens a few times per second and from outside the program.
"""

import os
import platform
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeVar

import psutil

from profiler.reading import text
from profiler.recorder.cgroup import Cgroup
from profiler.recorder.numa import SYSFS, nodes
from profiler.schema import HostSample

MEMORY_PERIOD = 1.0
"""Seconds between two readings of the machine's memory; the last reading is repeated in between.

A reading costs as much as three processes.
"""

UNREADABLE = (psutil.Error, OSError, RuntimeError, LookupError, TypeError, ValueError)
"""Exceptions that psutil raises if a container hides files of /proc or shows them empty."""

T = TypeVar("T")


def _answer(ask: Callable[[], T]) -> T | None:
    """Return the answer of `ask`; None if the machine does not provide it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's terminal is the program's
            return ask()
    except UNREADABLE:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The properties of the machine that do not change during a run, as in `Run`."""

    cores: float
    cores_total: int
    memory_total: int
    cpu_model: str | None
    platform: str
    numa_nodes: dict[int, str]


def machine(sysfs: Path = SYSFS) -> Machine:
    """Return the machine as this process may use it."""
    cgroup = Cgroup.own()
    total = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    memory = _answer(lambda: psutil.virtual_memory().total) or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cores=min(float(allowed), cgroup.cpu_quota() or allowed),
        cores_total=total,
        memory_total=min(memory, cgroup.memory_limit() or memory),
        cpu_model=_cpu(),
        platform=platform.platform(),
        numa_nodes=nodes(sysfs),
    )


def _cpu() -> str | None:
    """Return the model name from /proc/cpuinfo, which on some architectures has none."""
    lines = text(Path("/proc/cpuinfo")).splitlines()
    fields = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    model = next((value for key, value in fields if key == "model name"), None)
    return model or platform.processor() or None


@dataclass(frozen=True, slots=True)
class _Usage:
    """The resources one process has used since it started, in seconds and bytes."""

    parent: int
    cpu: float = 0.0
    reaped: float = 0.0
    """CPU seconds of its children that have ended and been waited for, and of theirs."""
    read: int | None = 0
    """Bytes read from storage, including by ended children, as the kernel counts them; None if unreadable."""
    written: int | None = 0
    rss: int = 0
    zombie: bool = False


class HostSampler:
    """A sampler of the process tree rooted at `root_pid`, without the recorder itself.

    A process stays in the tree when its parent ends. Usage between the last sample and a process's end is recovered
    from its parent, once that has waited for it.
    """

    def __init__(self, root_pid: int) -> None:
        self._cgroup = Cgroup.own()
        self._tree: dict[int, tuple[psutil.Process, int]] = {}
        with suppress(*UNREADABLE):  # it may have ended already
            self._tree[root_pid] = psutil.Process(root_pid), 0
        self._seen: frozenset[int] = frozenset()
        self._usage: dict[int, _Usage] = {}
        self._machine: tuple[float | None, float | None] = (None, None)
        self._at: float | None = None
        self._memory: int | None = None
        self._memory_at = float("-inf")
        self._scan()

    @property
    def pids(self) -> frozenset[int]:
        """Return the PIDs of the tree, as of the last sample."""
        return frozenset(self._tree)

    def sample(self, time: float, workers: Collection[int]) -> HostSample:
        """Return the usage since the last call; the first call has no rates.

        Args:
            time: Now, on the run clock; rates use a clock that is read together with the counters.
            workers: PIDs of DataLoader workers.
        """
        before, at, busy_before = self._usage, self._at, self._machine
        self._scan()
        self._at = monotonic()
        self._usage = usage = self._read()
        self._machine = busy, stolen = _machine_cpu()
        alive = [one for one in usage.values() if not one.zombie]
        cpu = workers_cpu = read = written = machine_cpu = steal = None
        if at is not None and self._at > at:
            elapsed = self._at - at
            machine_cpu = _rate(busy, busy_before[0], elapsed)
            steal = _rate(stolen, busy_before[1], elapsed)
            if alive:
                spent = _spent(before, usage)
                cpu = sum(spent.values()) / elapsed
                workers_cpu = sum(spent.get(pid, 0.0) for pid in workers) / elapsed
                moved = _moved(before, usage)
                read, written = (None, None) if moved is None else (moved[0] / elapsed, moved[1] / elapsed)
        return HostSample(
            time=time,
            cpu=cpu,
            cpu_workers=workers_cpu,
            rss=sum(one.rss for one in alive) if alive else None,
            processes=len(alive),
            read=read,
            write=written,
            machine_cpu=machine_cpu,
            steal=steal,
            memory_available=self._available(),
        )

    def _scan(self) -> None:
        """Add new processes to the tree.

        Only processes that appeared since the last scan are asked for their parent. A scan thus costs one listing of
        /proc and can be done with every sample; the CPU time of a process found late would be booked late.
        """
        pids = frozenset(_answer(psutil.pids) or self._seen)
        appeared: dict[int, tuple[psutil.Process, int]] = {}
        for pid in pids - self._seen - {os.getpid()}:
            try:
                process = psutil.Process(pid)
                appeared[pid] = process, process.ppid()
            except UNREADABLE:  # it has ended since
                continue
        self._seen = pids
        while children := {
            pid: (process, parent)
            for pid, (process, parent) in appeared.items()
            if parent in self._tree and pid not in self._tree
        }:
            self._tree |= children

    def _read(self) -> dict[int, _Usage]:
        usage = {}
        for pid, (process, parent) in list(self._tree.items()):
            try:
                usage[pid] = _usage(process, parent, self._usage.get(pid))
            except UNREADABLE:
                del self._tree[pid]
        return usage

    def _available(self) -> int | None:
        if monotonic() - self._memory_at >= MEMORY_PERIOD:
            self._memory_at = monotonic()
            machine, group = _answer(lambda: psutil.virtual_memory().available), self._cgroup.memory_available()
            self._memory = min((free for free in (machine, group) if free is not None), default=None)
        return self._memory


def _usage(process: psutil.Process, parent: int, before: _Usage | None) -> _Usage:
    with process.oneshot():
        times = process.cpu_times()
        zombie = process.status() == psutil.STATUS_ZOMBIE
        if zombie:  # the kernel no longer shows its I/O to its owner
            read, written = (before.read, before.written) if before else (0, 0)
        else:
            read, written = _io(process)
        return _Usage(
            parent=parent,
            cpu=times.user + times.system,
            reaped=times.children_user + times.children_system,
            read=read,
            written=written,
            rss=process.memory_info().rss,
            zombie=zombie,
        )


def _io(process: psutil.Process) -> tuple[int | None, int | None]:
    try:
        counters = process.io_counters()
    except (psutil.AccessDenied, AttributeError, NotImplementedError):  # not every kernel counts them
        return None, None
    return counters.read_bytes, counters.write_bytes


def _changes(before: dict[int, _Usage], now: dict[int, _Usage]) -> Iterator[tuple[int, _Usage, _Usage, list[_Usage]]]:
    """Yield each PID, its usage before and now, and the last known usage of ended processes that the latter includes.

    That of an ended process is included in the usage of its nearest living ancestor, the one that has waited for it.
    """
    inherited = defaultdict(list)
    for ended in before.keys() - now.keys():
        heir = ended
        while heir in before and heir not in now:
            heir = before[heir].parent
        inherited[heir].append(before[ended])
    for pid, one in now.items():
        yield pid, before.get(pid, _Usage(one.parent)), one, inherited[pid]


def _spent(before: dict[int, _Usage], now: dict[int, _Usage]) -> dict[int, float]:
    """Return the CPU seconds between two readings, by process."""
    spent = {}
    for pid, was, one, ended in _changes(before, now):
        known = sum(child.cpu + child.reaped for child in ended)
        spent[pid] = max(0.0, one.cpu - was.cpu) + max(0.0, one.reaped - was.reaped - known)
    return spent


def _moved(before: dict[int, _Usage], now: dict[int, _Usage]) -> tuple[int, int] | None:
    """Return the bytes read and written between two readings; None if some process cannot be read."""
    read = written = 0
    for _, was, one, ended in _changes(before, now):
        if one.read is None or one.written is None:
            return None
        read += max(0, one.read - (was.read or 0) - sum(child.read or 0 for child in ended))
        written += max(0, one.written - (was.written or 0) - sum(child.written or 0 for child in ended))
    return read, written


def _machine_cpu() -> tuple[float | None, float | None]:
    """Return the CPU seconds since boot that all cores have worked, and that the hypervisor has taken."""
    times = _answer(lambda: psutil.cpu_times()._asdict())
    if times is None:
        return None, None
    busy = sum(times.get(kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq"))
    return busy, times.get("steal")


def _rate(now: float | None, before: float | None, elapsed: float) -> float | None:
    return None if now is None or before is None else max(0.0, now - before) / elapsed
