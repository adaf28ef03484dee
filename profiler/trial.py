"""Run a program for a trial: for some steps, with changes made from outside, where it can harm nothing.

A trial is a process of its own, which moves into the sandbox before it starts the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from profiler import sandbox
from profiler.errors import ProfilerError
from profiler.launch import record

# The trackers' own switches: what they are told in a trial stays on this machine, in the sandbox.
_OFFLINE = {
    "WANDB_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}

_NO_SANDBOX = 97

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
    changes: tuple[dict[str, object], ...] = ()
    """{"name": ..., "settings": {...}}, as profiler/agent/interventions names them."""
    seed: int = 0
    windows: bool = False
    """With kernel detail, as advice needs it."""
    in_place: bool = False
    """Without the sandbox: what the program writes stays written."""
    covered: tuple[str, ...] = ()
    """More folders that it may write into, apart from its own, the home and /tmp."""


def run(trial: Trial, patience: float) -> Path | None:
    """Run it to its end, at most `patience` seconds; its recording's folder, or None if it was cut off.

    What the program prints goes to `<out>.log`. Raises ProfilerError if there is no sandbox for it.
    """
    out = Path(trial.out).absolute()
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = Path(f"{out}.log")
    scratch = tempfile.mkdtemp(prefix="profile-train-trial-", dir="/var/tmp")
    try:
        status = _wait(trial, scratch, log, patience)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if status == _NO_SANDBOX:
        raise ProfilerError(log.read_text(errors="replace").strip(), sandbox.REMEDY)
    return out if status is not None else None


def _wait(trial: Trial, scratch: str, log: Path, patience: float) -> int | None:
    code = [sys.executable, "-c", _MAIN, str(Path(__file__).parents[1])]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*code, json.dumps(asdict(trial)), scratch],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env={**os.environ, **_OFFLINE, "PYTHONHASHSEED": "0"},
        )
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Also what it left running: workers of a program that ended itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(text: str, scratch: str) -> None:
    """In the process of the trial. Ends with status 97 if there is no sandbox, else 0: how the program ended is in
    its recording."""
    trial = Trial(**json.loads(text))
    out = Path(trial.out).absolute()
    os.chdir(trial.cwd)
    if not trial.in_place:
        covered = [project(Path.cwd()), Path.home(), Path("/tmp"), *map(Path, trial.covered)]
        try:
            sandbox.enter(Path(scratch), [path for path in covered if path.is_dir() and path != Path("/")], [out])
        except ProfilerError as error:
            sys.stderr.write(error.message)
            sys.exit(_NO_SANDBOX)
    record(
        tuple(trial.words),
        out,
        rate=10.0 if trial.windows else 2.0,
        windows=trial.windows,
        trial={"steps": trial.steps, "seed": trial.seed, "changes": trial.changes},
    )


def project(folder: Path) -> Path:
    """The folder that the program is developed in: the Git repository's top, else the folder itself."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
