"""Measure the program's largest matmul with other numbers of threads, once the program has ended."""

import contextlib
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from profiler.agent.redact import known_secrets
from profiler.errors import ProfilerError
from profiler.schema import Fact, MatmulFact, Process, Run
from profiler.store import Writer

PROGRAM = Path(__file__).absolute().parents[1] / "agent" / "products.py"

PATIENCE = 30.0
"""Timeout in seconds: two for the matmuls, and the rest for importing torch."""

LARGEST = 1 << 28
"""Maximum elements of an operand, 1 GiB in fp32: larger ones could take memory from other programs."""


def measure(process: Process, matmul: MatmulFact, numbers: Sequence[int]) -> dict[int, float]:
    """Return the median seconds of the matmul by number of threads; empty if it cannot be run.

    It runs in a separate process, with the program's own Python. Ctrl-C ends it.
    """
    operands = (matmul.rows * matmul.inputs, matmul.inputs * matmul.outputs, matmul.rows * matmul.outputs)
    if process.executable is None or max(operands) > LARGEST:
        return {}
    shape = [str(size) for size in (matmul.rows, matmul.inputs, matmul.outputs)]
    command = [process.executable, str(PROGRAM), *shape, ",".join(map(str, numbers))]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, TypeError, AttributeError):
        result = subprocess.run(
            command,
            cwd="/",  # modules in the program's start folder must not be imported
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=True,
        )
        return {int(number): float(seconds) for number, seconds in json.loads(result.stdout).items()}
    return {}


def keep(folder: Path, run: Run, process: Process, seconds: dict[int, float]) -> None:
    """Add the result to the recording as a fact; on a full disk it is lost."""
    with contextlib.suppress(ProfilerError):
        store = Writer(folder, run.host, known_secrets(os.environ, run.command))
        body: dict[str, object] = {"seconds": {str(number): duration for number, duration in seconds.items()}}
        store.add(Fact(pid=process.pid, time=run.duration or 0.0, kind="threads", body=body))
        store.close()
