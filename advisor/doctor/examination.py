"""Run all checks, in the order in which they are shown."""

from collections.abc import Iterator
from pathlib import Path

from advisor.doctor import disk, gpus, host, permissions, stack
from advisor.doctor.finding import CheckResult
from profiler.launch import python

SCHEMA = "profile-train/doctor@1"


def examine(data: Path | None = None, interpreter: str | None = None) -> Iterator[CheckResult]:
    """Yield each finding as soon as it is known.

    `data` is where the training reads from, `interpreter` the program's Python.
    """
    torch = stack.ask(interpreter or python())
    seen = gpus.see()
    yield from stack.findings(torch, seen.gpus)
    yield from gpus.findings(seen, torch)
    yield from host.findings(host.look(), torch, seen.gpus)
    yield from permissions.findings(torch)
    yield from disk.findings(Path.cwd(), data)
