"""Run the command line as a child that ends with its request, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import psutil

import advisor

# The folder in which it runs is not on sys.path: it may hold a program's own profiler.py.
_COMMAND = (
    *(sys.executable, "-c"),
    "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main; raise SystemExit(main())",
    str(Path(advisor.__file__).parents[1]),
)
MOST_OUTPUT = 100_000
"""Bytes that are kept of each stream: its last ones."""

PATIENCE = (10.0, 5.0, 5.0)
"""Seconds to wait after SIGINT, SIGTERM and SIGKILL."""
HASTE = (0.5, 0.3, 0.2)
"""The same if the server itself is being ended, and soon killed."""

_running = set[int]()

Tell = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int | None
    """None if the time limit ended it."""
    out: str
    err: str


async def run(words: list[str], folder: Path, limit: float, tell: Tell) -> Ended:
    """Run the command line in the folder for at most `limit` seconds; `tell` it every second."""
    process = await anyio.open_process(
        [*_COMMAND, *words], stdin=subprocess.DEVNULL, cwd=folder, start_new_session=True
    )
    _running.add(process.pid)
    out, err = bytearray(), bytearray()
    began = time.monotonic()
    try:
        with anyio.move_on_after(limit):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_keep, process.stdout, out)
                tasks.start_soon(_keep, process.stderr, err)
                tasks.start_soon(_report, tell, began, err)
                await process.wait()
                tasks.cancel_scope.deadline = anyio.current_time() + 0.5  # a grandchild may hold the pipes
        status = process.returncode
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(end, process.pid, PATIENCE)
            await process.wait()
            await process.aclose()
            _running.discard(process.pid)
    return Ended(status, out.decode(errors="replace"), err.decode(errors="replace"))


async def _keep(stream: anyio.abc.ByteReceiveStream, kept: bytearray) -> None:
    async for chunk in stream:
        kept += chunk
        del kept[:-MOST_OUTPUT]


async def _report(tell: Tell, began: float, err: bytearray) -> None:
    while True:
        lines = err.decode(errors="replace").split("\n")
        await tell(time.monotonic() - began, next((line for line in reversed(lines) if line.strip()), ""))
        await anyio.sleep(1.0)


def end(pid: int, patience: tuple[float, ...]) -> None:
    """End the process and those below it, also in sessions of their own; return when none runs."""
    left = _below(pid)
    for number, seconds in zip((signal.SIGINT, signal.SIGTERM, signal.SIGKILL), patience, strict=True):
        for process in left:
            try:
                process.send_signal(number)
            except psutil.Error:
                continue
        until = time.monotonic() + seconds
        while left := [process for process in {*left, *_below(pid)} if _runs(process)]:
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        if not left:
            return


def end_all() -> None:
    """End what still runs, at once."""
    for pid in tuple(_running):
        end(pid, HASTE)


def _below(pid: int) -> list[psutil.Process]:
    """Return the processes of the child's session, and its descendants in other sessions."""
    found = []
    for process in psutil.process_iter():
        try:
            if _session(process.pid) == pid or any(parent.pid == pid for parent in process.parents()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _runs(process: psutil.Process) -> bool:
    # Its parent reaps it: to wait for it here would take its status away.
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
