"""The process to attach to, as seen from outside, and the ranks among its children."""

import os
import re
from pathlib import Path

import psutil

from profiler.errors import ProfilerError
from profiler.launch import VARIABLE
from profiler.reading import text

# Name of the main thread of a DataLoader worker, from torch 2.6 on.
WORKER = "pt_data_worker"

_NEEDED = "Give the PID of a training process. List processes with: ps -ef | grep python"


def check(pid: int, *, inject: bool = True) -> None:
    """Check that a process can be attached to.

    Raises:
        ProfilerError: there is nothing to attach to.
        PermissionError: the process may not be inspected.
    """
    if not Path("/proc/self/maps").exists():
        raise ProfilerError("Attaching needs Linux.", "Start the program with profile-train instead.")
    try:
        state = psutil.Process(pid).status()
    except (psutil.Error, ValueError, OverflowError):
        raise ProfilerError(f"There is no process {pid}.", _NEEDED) from None
    if pid == os.getpid():
        raise ProfilerError("That is this command itself.", _NEEDED)
    if state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        raise ProfilerError(f"Process {pid} has ended.", _NEEDED)
    if not inject:
        return
    owner = psutil.Process(pid).uids().effective
    if owner != os.geteuid():  # root could, but the program could not access files that root creates
        raise ProfilerError(
            f"Process {pid} belongs to another user.",
            f"Attach as that user: sudo -u '#{owner}' profile-train attach {pid}",
        )
    if state == psutil.STATUS_STOPPED:
        raise ProfilerError(f"Process {pid} is stopped.", f"Continue it: kill -CONT {pid}")
    if _namespaces(pid) != _namespaces(os.getpid()):
        raise ProfilerError(
            f"Process {pid} is in another container.",
            "Install profile-train there and attach from within (docker exec, kubectl exec), with its PID there.",
        )
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    if any(entry.startswith(f"{VARIABLE}=".encode()) for entry in variables):
        raise ProfilerError(
            f"Process {pid} was started by profile-train, which records it.", "Watch that run: profile-train watch"
        )


def ranks(pid: int) -> list[int]:
    """Return the processes of a tree that have torch loaded, without DataLoader workers.

    A launcher with such children is not a rank; without any, the result is `pid` itself.
    """
    try:
        children = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        children = []
    torch_pids = [child for child in children if has_torch(child) and not is_worker(child)]
    # A child with the command line of its parent was forked by a rank, and is not a rank.
    commands = {candidate: command(candidate) for candidate in [pid, *torch_pids]}
    rank_pids = [candidate for candidate in torch_pids if commands.get(_parent(candidate)) != commands[candidate]]
    return rank_pids or [pid]


def has_torch(pid: int) -> bool:
    """Return whether the process runs Python and has torch's library loaded."""
    maps = text(Path(f"/proc/{pid}/maps"))
    return re.search(r"/libtorch[^/\n]*\.so", maps) is not None and "python" in maps


def is_worker(pid: int) -> bool:
    """Return whether the process is a DataLoader worker, judging by its name."""
    return text(Path(f"/proc/{pid}/comm")).strip() == WORKER


def command(pid: int) -> tuple[str, ...]:
    """Return the command line of the process; empty if it cannot be read."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ()
    return tuple(word.decode(errors="replace") for word in words)


def as_typed(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command as a user types it after `profile-train`. The interpreter is dropped if it has no options."""
    if len(words) > 1 and re.fullmatch(r"python[\d.]*", Path(words[0]).name) and not re.match(r"-[^m]", words[1]):
        return words[1:]
    return words


def folder(pid: int) -> str | None:
    """Return the working directory of the process; None if it cannot be read."""
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return None


def _parent(pid: int) -> int:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return 0


def _namespaces(pid: int) -> list[str]:
    """Return the mount and PID namespaces of a process.

    Raises:
        PermissionError: the process may not be inspected.
    """
    return [str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("mnt", "pid")]
