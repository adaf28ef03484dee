"""Resources used by the processes of a command, as reported by Linux."""

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Used:
    cpu: float
    """CPU time, in seconds."""
    memory: float
    """Peak resident memory, in bytes."""


@dataclass(frozen=True)
class Reading:
    program: list[Used]
    """The training processes."""
    workers: list[Used]
    """The processes that they have started."""
    beside: list[Used]
    """All other processes of the command: recorders, launchers."""

    @property
    def cpu_beside(self):
        return sum(used.cpu for used in self.beside)

    @property
    def memory_beside(self):
        return sum(used.memory for used in self.beside)


def read(command, program):
    """Return what the processes under the PID `command` used; `program` lists the PIDs of the training processes."""
    root = psutil.Process(command)
    every = {process.pid: process for process in [root, *root.children(recursive=True)]}
    training = [every[pid] for pid in program]
    workers = {child.pid for process in training for child in process.children(recursive=True)}
    beside = [process for pid, process in every.items() if pid not in workers and pid not in program]
    return Reading(
        program=_used(training),
        workers=_used([every[pid] for pid in workers if pid in every]),
        beside=_used([process for process in beside if not _is_copy(process, every)]),
    )


def _is_copy(process, every):
    """Return whether this is a fork that has not become another program: its pages count as its parent's."""
    parent = every.get(process.ppid())
    return parent is not None and process.cmdline() == parent.cmdline()


def _used(processes):
    found = []
    for process in processes:
        try:
            found.append(Used(_cpu(process), _peak(process.pid)))
        except (OSError, psutil.NoSuchProcess):  # it has just ended
            continue
    return found


def _cpu(process):
    """Return CPU seconds, with nanosecond resolution where the kernel keeps it, but then without threads that ended."""
    try:
        tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
    except FileNotFoundError:
        times = process.cpu_times()
        return times.user + times.system


def _peak(pid):
    """Return peak resident bytes; `ru_maxrss` would begin with the peak of the process that started this one."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise FileNotFoundError(f"{pid} is a zombie")
