"""Check the cores, memory, shared memory and NUMA nodes available to this process."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from advisor.doctor.finding import CheckResult, fix, ok, warning
from advisor.doctor.stack import Torch
from advisor.units import digits, size
from profiler.recorder.cgroup import Cgroup
from profiler.recorder.folder import RINGS_ROOM
from profiler.recorder.host import Machine, machine
from profiler.schema import Gpu

GIB = 1 << 30

SHARED = GIB
"""Smallest adequate size of /dev/shm, in bytes.

DataLoader workers transfer batches there; Docker provides 64 MiB (assumption: 1 GiB holds the batches in flight).
"""

SCARCE = 0.1
"""Share of free memory below which the kernel may kill a training run (assumption)."""

FULL = 0.5
"""Share of the cores in use by others above which measurements are unreliable (assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host(Machine):
    """The machine, and how much of it is free; None if it does not report that."""

    cores_allowed: int
    """Cores by affinity, as programs count them."""
    quota: float | None = None
    load: float | None = None
    """Mean number of programs that ran or waited for a core in the last minute."""
    memory_installed: int
    """Bytes of memory without the cgroup's limit."""
    memory_left: int
    shared: int | None = None
    """Size of /dev/shm in bytes; None if there is none."""
    shared_left: int = 0


def look(shared: Path = Path("/dev/shm")) -> Host:
    """Return what this machine has, and how much of it is free now."""
    group, memory = Cgroup.own(), psutil.virtual_memory()
    available = group.memory_available()
    try:
        disk = shutil.disk_usage(shared)
    except OSError:
        disk = None
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = None
    return Host(
        **asdict(machine()),
        cores_allowed=len(os.sched_getaffinity(0)),
        quota=group.cpu_quota(),
        load=load,
        memory_installed=memory.total,
        memory_left=memory.available if available is None else min(available, memory.available),
        shared=disk.total if disk else None,
        shared_left=disk.free if disk else 0,
    )


def findings(host: Host, torch: Torch, gpus: Sequence[Gpu] = ()) -> Iterator[CheckResult]:
    """Yield the findings on the resources available to programs."""
    yield _cores(host, torch)
    if host.load is not None and host.load > FULL * host.cores_total:
        yield warning(
            "load",
            f"In the last minute, {digits(host.load)} programs on average ran or waited for one of {host.cores_total} "
            "cores.",
            "Measure on an idle machine: other programs slow down steps.",
        )
    yield _memory(host)
    yield _shared(host)
    yield _numa(host, gpus)


def _cores(host: Host, torch: Torch) -> CheckResult:
    sentence = f"{digits(host.cores)} of the machine's {host.cores_total}"
    if host.quota is not None and host.quota < host.cores_allowed:
        threads = f", and torch starts {torch.threads} threads" if (torch.threads or 0) > host.quota else ""
        return warning(
            "cores",
            f"The cgroup allows {digits(host.quota)} cores, but programs see {host.cores_allowed}{threads}.",
            f"Set OMP_NUM_THREADS={max(1, int(host.quota))}, and use at most that many DataLoader workers.",
        )
    if host.cores < 2:
        return warning("cores", f"{sentence}: data loading and training share it.", "Give the job two cores or more.")
    return ok("cores", sentence)


def _memory(host: Host) -> CheckResult:
    limit = f", limited by the cgroup to {size(host.memory_total)}" if host.memory_total < host.memory_installed else ""
    sentence = f"{size(host.memory_left)} free of {size(host.memory_installed)}{limit}"
    if host.memory_left < SCARCE * host.memory_total:
        return warning(
            "memory", f"{sentence}: a training run may be killed.", "Stop other programs, or raise the limit."
        )
    return ok("memory", sentence)


def _shared(host: Host) -> CheckResult:
    name, remedy = "/dev/shm", "Start the container with --shm-size=8g or --ipc=host."
    if host.shared is None:
        return fix(name, "There is no shared memory: DataLoader workers cannot transfer batches.", remedy)
    sentence = f"{size(host.shared_left)} free of {size(host.shared)}"
    if host.shared_left < RINGS_ROOM:
        return fix(name, f"{sentence}: too little for DataLoader workers.", f"Remove files from it. {remedy}")
    if host.shared < SHARED:
        return warning(name, f'{sentence}: the batches of several workers may not fit ("Bus error").', remedy)
    return ok(name, sentence)


def _numa(host: Host, gpus: Sequence[Gpu]) -> CheckResult:
    if len(host.numa_nodes) < 2:
        return ok("NUMA", "one node" if host.numa_nodes else "unknown: one node, or a virtual machine")
    nodes = "; ".join(f"{node}: {cores}" for node, cores in host.numa_nodes.items())
    gpu_nodes = "".join(f"; GPU {gpu.index} at {gpu.numa_node}" for gpu in gpus if gpu.numa_node is not None)
    return ok("NUMA", f"{len(host.numa_nodes)} nodes (cores {nodes}{gpu_nodes})")
