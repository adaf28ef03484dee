"""Run the command line as a child that ends with its request, and leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

import anyio

from advisor.mcp.ending import end
from profiler.child import python

_COMMAND = python("from advisor.cli import main; raise SystemExit(main())")
_KEEPER = python("from advisor.mcp.ending import keep; keep()")
MOST_OUTPUT = 100_000
"""Bytes kept of each stream: the last ones."""

Tell = Callable[[float, str], Awaitable[None]]


@cache
def _keeper() -> subprocess.Popen[bytes]:
    """Start the process that ends all running commands once this process is gone, even by SIGKILL."""
    return subprocess.Popen(
        _KEEPER, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the keeper was ended
        os.write(_keeper().stdin.fileno(), f"{line}\n".encode())  # type: ignore[union-attr]


async def run(words: list[str], folder: Path, limit: float, tell: Tell) -> tuple[int | None, str, str]:
    """Run the command line in the folder for at most `limit` seconds, and `tell` the progress every second.

    Return the exit status (None if the time limit ended it), stdout and stderr.
    """
    process = await anyio.open_process(
        [*_COMMAND, *words], stdin=subprocess.DEVNULL, cwd=folder, start_new_session=True
    )
    _say(f"+{process.pid}")
    out, err = bytearray(), bytearray()
    start = time.monotonic()
    try:
        with anyio.move_on_after(limit):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_keep, process.stdout, out)
                tasks.start_soon(_keep, process.stderr, err)
                tasks.start_soon(_report, tell, start, err)
                await process.wait()
                tasks.cancel_scope.deadline = anyio.current_time() + 0.5  # a grandchild may keep the pipes open
        status = process.returncode
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(end, process.pid)
            await process.wait()
            await process.aclose()
            _say(f"-{process.pid}")
    return status, out.decode(errors="replace"), err.decode(errors="replace")


async def _keep(stream: anyio.abc.ByteReceiveStream, kept: bytearray) -> None:
    async for chunk in stream:
        kept += chunk
        del kept[:-MOST_OUTPUT]


async def _report(tell: Tell, began: float, err: bytearray) -> None:
    while True:
        lines = err.decode(errors="replace").split("\n")
        await tell(time.monotonic() - began, next((line for line in reversed(lines) if line.strip()), ""))
        await anyio.sleep(1.0)
