"""End processes and everything that they started: after a request, or after the server is gone."""

import os
import signal
import sys
import time
from collections.abc import Sequence

import psutil

PATIENCE = (10.0, 5.0, 5.0)
"""Seconds to wait after SIGINT, SIGTERM and SIGKILL."""


def end(*pids: int) -> None:
    """End processes and their descendants, also in other sessions; return once none runs, or after PATIENCE."""
    processes = _below(pids)
    for number, seconds in zip((signal.SIGINT, signal.SIGTERM, signal.SIGKILL), PATIENCE, strict=True):
        for process in processes:
            try:
                process.send_signal(number)
            except psutil.Error:
                continue
        deadline = time.monotonic() + seconds
        while processes := [process for process in {*processes, *_below(pids)} if _runs(process)]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if not processes:
            return


def keep() -> None:
    """Read PIDs that begin (+) and end (-) from stdin; at its end, end those that are left.

    The pipe closes when the server ends, even by SIGKILL.
    """
    pids = set[int]()
    for line in sys.stdin:
        (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
    end(*pids)


def _below(pids: Sequence[int]) -> list[psutil.Process]:
    """Return the processes of the sessions that these lead, and their descendants in other sessions."""
    processes = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in pids or any(parent.pid in pids for parent in process.parents()):
                processes.append(process)
        except (psutil.Error, OSError):  # it has ended meanwhile
            continue
    return processes


def _runs(process: psutil.Process) -> bool:
    # Its parent reaps it: waiting for it here would discard its exit status.
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
