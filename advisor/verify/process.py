"""Run a program once more with changes; a process that was already run is not run again."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from advisor.rules.base import Intervention
from advisor.verify.arm import TrialFailed
from profiler.errors import ProfilerError
from profiler.printable import say
from profiler.recorder.folder import SILENT, is_running
from profiler.sandbox import GRACE
from profiler.trial import Program, TrialProcess, run

ENDED = "ended"
"""File in a recording's folder that marks a completed process."""

# Time limit in seconds for a trial to end after it lost its caller. If the trial was killed, too, its recorder's last
# sign of life counts for SILENT seconds.
PARTING = GRACE + SILENT + 5.0


def run_once(
    program: Program,
    changes: Sequence[Intervention],
    out: Path,
    steps: int,
    *,
    patience: float,
    windows: bool = False,
    nudged: bool = False,
) -> None:
    """Record the program into `out`, and its output into `out`.log.

    `nudged` changes the model's weights by a rounding error.

    Raises:
        TrialFailed: it takes longer than `patience` seconds.
        ProfilerError: there is no sandbox, or no such program.
    """
    if (out / ENDED).exists():
        return
    _forget(out)
    trial = TrialProcess(
        **asdict(program),
        out=str(out.absolute()),
        steps=steps,
        changes=tuple({"name": change.name, "settings": dict(change.settings)} for change in changes),
        windows=windows,
        nudged=nudged,
    )
    if run(trial, patience) is None:
        raise TrialFailed(f"It did not complete {steps} steps in {patience:.0f} s.")
    (out / ENDED).touch(mode=0o600)


def forget(out: Path) -> None:
    """Mark the recording in `out` as invalid: the same request then runs the process again."""
    (out / ENDED).unlink(missing_ok=True)


def _forget(out: Path) -> None:
    """Remove the remains of an interrupted process, which may still be ending if its profile-train was killed."""
    deadline = time.monotonic() + PARTING
    if is_running(out):
        say("Waiting for an earlier trial to end ...")
    while is_running(out):
        if time.monotonic() > deadline:
            raise ProfilerError(f"Another profile-train is recording into {out}.", "Wait for it, or end it.")
        time.sleep(0.1)
    shutil.rmtree(out, ignore_errors=True)
