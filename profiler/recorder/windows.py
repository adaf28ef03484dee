"""Read the profiler windows that the agent saved, and hide the secrets in them."""

import gzip
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from profiler import private
from profiler.errors import ProfilerError
from profiler.importers.analysis import analyze
from profiler.importers.redaction import redacted
from profiler.schema import Kernel, Operator, Sync, TraceFact, Window


def parse(
    path: Path,
    *,
    pid: int,
    position: int,
    start: float,
    steps: int,
    cost: float,
    device: Literal["cpu", "cuda"] | None = None,
) -> tuple[Window, list[Kernel], list[Operator], list[Sync], TraceFact | None]:
    """Return the window whose trace is at `path`, its kernels, operators and waits, and a fact on its GPU work.

    The kernels (or operators), the operators by shape if shapes were recorded, and the waits for the GPU are sorted by
    time, most first. The fact is None without GPU work.

    Args:
        pid: The process that was recorded.
        position: The window's index among the windows of the process.
        start: Start of its first step on the run clock, in seconds.
        steps: Its number of steps; used only if the trace marks none.
        cost: Seconds that the window cost the program.
        device: With "cuda" a trace without GPU work is an error, not an idle GPU.

    Raises:
        ProfilerError: the file is cut off, foreign, or holds nothing to measure.
    """
    analysis = analyze(path)
    if analysis.cut_off:  # Kineto writes GPU work last: the GPU would look idle
        raise ProfilerError(
            f"The profiler window {path} is incomplete.",
            "The program may have been killed, or the disk may have been full, while it was written. Record the run "
            "again.",
        )
    if device == "cuda" and analysis.window.device != "cuda":
        raise ProfilerError(
            f"The profiler window {path} shows no GPU work.",
            "Another tool may be using CUPTI (Nsight, DCGM's profiling, a debugger): end it and record again.",
        )
    window = replace(
        analysis.window,
        pid=pid,
        start=start + analysis.window.start - analysis.first,
        steps=analysis.window.steps if analysis.marked else steps,
        cost=cost,
    )
    return (
        window,
        [replace(row, pid=pid, window=position) for row in analysis.kernels],
        # Without shapes, the table adds little to the kernels; most windows record no shapes, and there are many.
        [replace(row, pid=pid, window=position) for row in analysis.operators if analysis.window.shapes],
        [replace(row, pid=pid, window=position) for row in analysis.syncs],
        replace(analysis.fact, id=position) if analysis.fact.parts else None,
    )


def redact_trace(path: Path, known: Sequence[str] = ()) -> None:
    """Hide secrets in the trace at `path`, in place: a program may give its regions any names.

    `known` are secrets to hide wherever they occur. Unreadable parts of a damaged file are left out, because they could
    contain secrets. A file that cannot be opened or replaced stays as it is.
    """
    try:
        if not any(piece.changed for piece in redacted(path, known)):
            return
        temporary = path.with_name(f"{path.name}.new")
        private.write(temporary, "")
        with gzip.open(temporary, "wb") if path.suffix == ".gz" else temporary.open("wb") as file:
            for piece in redacted(path, known):
                file.write(piece.text)
        os.replace(temporary, path)
    except (OSError, MemoryError):
        return
