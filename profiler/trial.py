"""Run a program for a trial: for some steps, with changes made from outside, where it can harm nothing.

A trial is a process of its own, which moves into the sandbox before it starts the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from profiler import sandbox
from profiler.errors import ProfilerError
from profiler.launch import record
from profiler.recorder import private

# The trackers' own switches: what they are told in a trial stays on this machine, in the sandbox.
_OFFLINE = {
    "WANDB_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_ALLOW_FILE_STORE": "true",
}

_GIVEN_UP = 97
"""Exit status before the program was started, with message and remedy as the log's last lines."""

# prctl(2)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_MAIN = "import sys; sys.path.insert(0, sys.argv[1]); from profiler.trial import main; main(*sys.argv[2:])"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One process of a trial."""

    words: tuple[str, ...]
    """As `profile-train` was given them."""
    cwd: str
    out: str
    """Where its recording goes."""
    steps: int
    changes: tuple[dict[str, Any], ...] = ()
    """{"name": ..., "settings": {...}}, as profiler/agent/interventions names them."""
    seed: int = 0
    nudged: bool = False
    """Its weights are changed by a rounding error: what rounding alone does to its losses shows."""
    windows: bool = False
    """With kernel detail, as advice needs it."""
    in_place: bool = False
    """Without the sandbox: what the program writes stays written."""
    covered: tuple[str, ...] = ()
    """More folders that it may write into, apart from its own, the home and /tmp."""


def variables(changes: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """What the program's environment has by the changes of that name; None takes a variable away."""
    return {
        name: value
        for change in changes
        if change["name"] == "environment"
        for name, value in change["settings"]["variables"].items()
    }


def set_variables(wanted: Mapping[str, str | None]) -> None:
    """In this process, for those that it starts."""
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def run(trial: Trial, patience: float) -> Path | None:
    """Run it to its end, at most `patience` seconds; its recording's folder, or None if it was cut off.

    What the program prints goes to `<out>.log`. Raises ProfilerError if there is no sandbox for it, or the program
    cannot be started.
    """
    out = Path(trial.out).absolute()
    private.make_parents(out, 0o700)
    out.mkdir(mode=0o700, exist_ok=True)
    log = Path(f"{out}.log")
    scratch = tempfile.mkdtemp(prefix="profile-train-trial-", dir="/var/tmp")
    try:
        status = _wait(trial, scratch, log, patience)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if status:
        message, _, remedy = log.read_text(errors="replace").strip().rpartition("\n")
        if status != _GIVEN_UP:
            message, remedy = f"The trial broke off: {remedy}", f"All of it is in {log}."
        raise ProfilerError(message, remedy)
    return out if status is not None else None


def _wait(trial: Trial, scratch: str, log: Path, patience: float) -> int | None:
    code = [sys.executable, "-c", _MAIN, str(Path(__file__).parents[1])]
    with open(log, "wb", opener=private.for_us_alone) as file:
        process = subprocess.Popen(
            [*code, json.dumps(asdict(trial)), scratch],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_children(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_children(pid: int) -> None:
    """All that this process has started, wherever it has gone: launchers give workers sessions of their own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def main(text: str, scratch: str) -> None:
    """In the process of the trial. Ends with status 97 if nothing could be run, else 0: how the program ended is in its
    recording."""
    trial = Trial(**json.loads(text))
    caller = os.getppid()
    try:
        _run(trial, Path(scratch), caller)
    except ProfilerError as error:
        sys.stderr.write(f"{error.message}\n{error.remedy}")
        sys.exit(_GIVEN_UP)
    finally:
        end_children(os.getpid())
        if os.getppid() != caller:
            shutil.rmtree(scratch, ignore_errors=True)


def _run(trial: Trial, scratch: Path, caller: int) -> None:
    out = Path(trial.out).absolute()
    os.chdir(trial.cwd)
    if not trial.in_place:
        covered = [project(Path.cwd()), Path.home(), Path("/tmp"), *map(Path, trial.covered)]
        sandbox.enter(scratch, [path for path in covered if path.is_dir() and path != Path("/")], [out])
    offline = {**_OFFLINE, "MLFLOW_TRACKING_URI": (out / "mlruns").as_uri()}
    set_variables({**variables(trial.changes), **offline, "PYTHONHASHSEED": "0"})
    # Only now: a new user namespace takes the first back. What the program starts and leaves becomes a child of ours.
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != caller:
        return
    record(
        tuple(trial.words),
        out,
        rate=10.0 if trial.windows else 2.0,
        windows=trial.windows,
        trial={"steps": trial.steps, "seed": trial.seed, "nudged": trial.nudged, "changes": trial.changes},
    )


def project(folder: Path) -> Path:
    """The folder that the program is developed in: the Git repository's top, else the folder itself."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
