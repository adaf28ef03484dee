"""Sample the resource use of the program's processes and of the machine.

This happens a few times per second and from outside the program.
"""

import os
import platform
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import psutil

from profiler.reading import text
from profiler.recorder.cgroup import Cgroup
from profiler.recorder.numa import SYSFS, nodes
from profiler.schema import Fact, HostSample

MEMORY_PERIOD = 1.0
"""Seconds between two readings of the machine's memory; the last reading is repeated in between.

A reading costs as much as reading three processes.
"""

UNREADABLE = (psutil.Error, OSError, RuntimeError, LookupError, TypeError, ValueError)
"""Exceptions that psutil raises if a container hides files of /proc or shows them empty."""

T = TypeVar("T")


def _answer(ask: Callable[[], T]) -> T | None:
    """Return the answer of `ask`; None if the machine does not provide it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the terminal belongs to the program
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
    allowed_cores = len(os.sched_getaffinity(0))
    memory = _answer(lambda: psutil.virtual_memory().total) or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cores=min(float(allowed_cores), cgroup.cpu_quota() or allowed_cores),
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
    """CPU seconds of its descendants that have ended and been waited for."""
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
        previous_usage, previous_time, previous_cpu = self._usage, self._at, self._machine
        self._scan()
        self._at = monotonic()
        self._usage = usage = self._read()
        self._machine = busy, stolen = _machine_cpu()
        live_processes = [process for process in usage.values() if not process.zombie]
        amounts: dict[str, float | None] = {}
        elapsed = 0.0 if previous_time is None else self._at - previous_time
        if elapsed > 0:
            amounts = {"machine_cpu": _more(busy, previous_cpu[0]), "steal": _more(stolen, previous_cpu[1])}
            if live_processes:
                cpu, amounts["read"], amounts["write"] = _used(previous_usage, usage)
                amounts["cpu"], amounts["cpu_workers"] = sum(cpu.values()), sum(cpu.get(pid, 0.0) for pid in workers)
        rates: dict[str, Any] = {name: amount / elapsed for name, amount in amounts.items() if amount is not None}
        return HostSample(
            time=time,
            rss=sum(process.rss for process in live_processes) if live_processes else None,
            processes=len(live_processes),
            memory_available=self._available(),
            **rates,
        )

    def _scan(self) -> None:
        """Add new processes to the tree.

        The parent is read only for processes that appeared since the last scan. A scan thus costs one listing of /proc
        and can run with every sample; the CPU time of a process found late would be counted late.
        """
        pids = frozenset(_answer(psutil.pids) or self._seen)
        new_processes: dict[int, tuple[psutil.Process, int]] = {}
        for pid in pids - self._seen - {os.getpid()}:
            try:
                process = psutil.Process(pid)
                new_processes[pid] = process, process.ppid()
            except UNREADABLE:  # it has ended since
                continue
        self._seen = pids
        while children := {
            pid: (process, parent)
            for pid, (process, parent) in new_processes.items()
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
            in_machine, in_group = _answer(lambda: psutil.virtual_memory().available), self._cgroup.memory_available()
            self._memory = min((free for free in (in_machine, in_group) if free is not None), default=None)
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


def _used(before: dict[int, _Usage], now: dict[int, _Usage]) -> tuple[dict[int, float], int | None, int | None]:
    """Return what was used between two readings: CPU seconds by process, bytes read and bytes written.

    The bytes are None if some process cannot be read. The usage of an ended process is included in that of its nearest
    living ancestor, which has waited for it, so the part that was counted before is subtracted.
    """
    inherited = defaultdict(list)
    for ended_pid in before.keys() - now.keys():
        heir = ended_pid
        while heir in before and heir not in now:
            heir = before[heir].parent
        inherited[heir].append(before[ended_pid])
    cpu_seconds = {}
    read = written = 0
    readable = all(usage.read is not None and usage.written is not None for usage in now.values())
    for pid, usage in now.items():
        old, children = before.get(pid, _Usage(usage.parent)), inherited[pid]
        reaped = usage.reaped - old.reaped - sum(child.cpu + child.reaped for child in children)
        cpu_seconds[pid] = max(0.0, usage.cpu - old.cpu) + max(0.0, reaped)
        read += max(0, (usage.read or 0) - (old.read or 0) - sum(child.read or 0 for child in children))
        written += max(0, (usage.written or 0) - (old.written or 0) - sum(child.written or 0 for child in children))
    return cpu_seconds, read if readable else None, written if readable else None


def _machine_cpu() -> tuple[float | None, float | None]:
    """Return the CPU seconds since boot that all cores worked, and those that the hypervisor took."""
    times = _answer(lambda: psutil.cpu_times()._asdict())
    if times is None:
        return None, None
    busy = sum(times.get(kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq"))
    return busy, times.get("steal")


def _more(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else max(0.0, now - before)


class Scheduling:
    """The time for which each rank's main thread waited for a core, from the kernel's statistics.

    It counts from the rank's first training event on. Each look reads one file of /proc per rank.
    """

    def __init__(self) -> None:
        self._looks: dict[int, list[tuple[float, int]]] = {}
        """The first and last look at each PID: its time, and the ns spent waiting for a core."""

    def look(self, now: float, pids: Iterable[int]) -> None:
        """Read the current statistics; a process that is gone keeps its last ones."""
        for pid in pids:
            with suppress(ValueError):  # no such file
                _, waited, *_ = map(int, text(Path(f"/proc/{pid}/schedstat")).split())
                self._looks.setdefault(pid, [(now, waited)])[1:] = [(now, waited)]

    def facts(self) -> list[Fact]:
        """Return the SchedulingFacts; none if the kernel keeps no such statistics."""
        return [
            Fact(
                pid=pid,
                time=end,
                kind="scheduling",
                body={"seconds": end - start, "waited": (waited_at_end - waited_at_start) / 1e9},
            )
            for pid, ((start, waited_at_start), (end, waited_at_end)) in self._looks.items()
            if end > start
        ]
