"""Run a program for a trial: for some steps, with changes made from outside, where it can do no harm.

A trial is a separate process, which enters the sandbox before it starts the program.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from profiler import private, sandbox
from profiler.agent.redact import known_secrets, redact_text
from profiler.child import python, set_variables
from profiler.errors import ProfilerError
from profiler.launch import record
from profiler.options import RecordingOptions
from profiler.recorder import folder as run_folder

# The trackers' own switches that keep a trial's data on this machine, in the sandbox.
_OFFLINE = {
    "WANDB_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "SWANLAB_MODE": "offline",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_ALLOW_FILE_STORE": "true",
}

_GIVEN_UP = 97
"""Exit status if the program was not started; message and remedy are then the log's last lines."""

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

_SCRATCH = "profile-train-scratch-"

# The caller's folder is not on sys.path: its modules would be imported before the sandbox is entered.
_MAIN = python("from profiler.trial import main; main(*sys.argv[1:])")


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to run again, and what it may touch."""

    words: tuple[str, ...]
    """The command, as given to `profile-train`."""
    cwd: str
    in_place: bool = False
    """Whether to run without the sandbox: files the program writes stay."""
    covered: tuple[str, ...] = ()
    """Folders the program may write into, in addition to its project, the home folder and /tmp."""
    network: bool = False
    """Whether the network is accessible from the sandbox."""


@dataclass(frozen=True, kw_only=True)
class TrialProcess(Program):
    """One process of a trial."""

    out: str
    """Folder of its recording."""
    steps: int
    changes: tuple[dict[str, Any], ...] = ()
    """Changes as {"name": ..., "settings": {...}}, named as in profiler/agent/interventions."""
    seed: int = 0
    nudged: bool = False
    """Whether its weights are changed by a rounding error, to show what rounding does to its losses."""
    windows: bool = False
    """Whether to record kernel detail, which advice needs."""


def variables(changes: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the environment variables that the changes named "environment" set; None removes a variable."""
    return {
        name: value
        for change in changes
        if change["name"] == "environment"
        for name, value in change["settings"]["variables"].items()
    }


def run(trial: TrialProcess, patience: float) -> Path | None:
    """Run a trial for at most `patience` seconds.

    Return its recording's folder, or None if it was cut off. The program's output goes to `<out>.log`, without its
    secrets.

    Raises:
        ProfilerError: there is no sandbox for it, or the program cannot be started.
    """
    out = Path(trial.out).absolute()
    private.make_parents(out, 0o700)
    out.mkdir(mode=0o700, exist_ok=True)
    log = Path(f"{out}.log")
    with _scratch_folder() as scratch:
        status = _wait(trial, scratch, log, patience)
    if status:
        message, _, remedy = log.read_text(errors="replace").strip().rpartition("\n")
        if status != _GIVEN_UP:
            message, remedy = f"The trial ended early: {remedy}", f"The full log is {log}."
        raise ProfilerError(message, remedy)
    return out if status is not None else None


def _wait(trial: TrialProcess, scratch: str, log: Path, patience: float) -> int | None:
    process = subprocess.Popen(
        [*_MAIN, json.dumps(asdict(trial)), scratch],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    secrets = known_secrets(os.environ, trial.words)
    log_thread = threading.Thread(target=_keep_log, args=(process.stdout, log, secrets), daemon=True)
    log_thread.start()
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_children(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _remove_notes(Path(trial.out))
        log_thread.join(5.0)  # a process that escaped from the trial may hold its end of the pipe


def _keep_log(output: IO[bytes], log: Path, secrets: Sequence[str]) -> None:
    """Write a trial's output to its log, line by line, without secrets. A full disk does not stop the trial."""
    with output, open(log, "w", encoding="utf-8", opener=private.for_us_alone) as file:
        while line := output.readline(1 << 13):
            with contextlib.suppress(OSError):
                file.write(redact_text(line.decode(errors="replace"), secrets))
                file.flush()


def _remove_notes(out: Path) -> None:
    """Mark a trial's recording as ended, which a recorder that was killed could not do itself.

    It was in its own namespace, so its last heartbeat would count for a minute.
    """
    for note in run_folder.notes(out):
        run_folder.remove_note(out, note.part)


@contextlib.contextmanager
def _scratch_folder(base: Path = Path("/var/tmp")) -> Iterator[str]:
    """Yield a folder for a trial's writes, then remove it; also remove folders that are no longer used.

    If we are killed, the trial empties its folder but cannot remove it: in its view, the parent folder is read-only.
    """
    scratch, lock = "", None
    while not os.path.exists(scratch):  # another trial may have removed it as unused
        scratch = tempfile.mkdtemp(prefix=_SCRATCH, dir=base)
        lock = _locked(scratch, fcntl.LOCK_EX)
    try:
        for folder in base.glob(f"{_SCRATCH}*"):
            if private.is_ours_alone(folder) and (handle := _locked(str(folder))) is not None:
                _discard(str(folder))
                os.close(handle)
        yield scratch
    finally:
        _discard(scratch)
        if lock is not None:
            os.close(lock)


def _locked(folder: str, how: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> int | None:
    """Return a handle that keeps the folder locked; None if another process holds it, or locking is unsupported."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, how)
    except OSError:
        os.close(handle)
        return None
    return handle


def _discard(scratch: str) -> None:
    """Remove the folder, with the inaccessible folders that overlayfs has made in it."""
    for folder in Path(scratch).glob(".work-*/*"):
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
    shutil.rmtree(scratch, ignore_errors=True)


def end_children(pid: int) -> None:
    """Kill all descendants of a process, including those in their own sessions, such as workers of launchers."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def main(text: str, scratch: str) -> None:
    """Run the trial in this process, which exits with status 97 if nothing could be run, else with 0.

    The recording shows how the program ended.
    """
    trial = TrialProcess(**json.loads(text))
    own_pid, caller = os.getpid(), os.getppid()
    try:
        _run(trial, Path(scratch), caller)
    except ProfilerError as error:
        sys.stderr.write(f"{error.message}\n{error.remedy}")
        sys.exit(_GIVEN_UP)
    except SystemExit as system_exit:
        if os.getpid() == own_pid and system_exit.code == 128 + signal.SIGKILL:
            _remove_notes(Path(trial.out))
        raise
    finally:
        if os.getpid() == own_pid:  # not in the sandbox
            end_children(own_pid)
            if os.getppid() != caller:
                _discard(scratch)


def _run(trial: TrialProcess, scratch: Path, caller: int) -> None:
    out = Path(trial.out).absolute()
    os.chdir(trial.cwd)
    if trial.in_place:  # processes that the program leaves behind become our children
        sandbox.end_with_parent(signal.SIGTERM)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != caller:
            return
    else:
        covered = [project(Path.cwd()), Path.home(), Path("/tmp"), *map(Path, trial.covered)]
        sandbox.enter(
            scratch, [path for path in covered if path.is_dir() and path != Path("/")], [out], network=trial.network
        )
    set_variables({**variables(trial.changes), **_kept_offline(trial), "PYTHONHASHSEED": "0"})
    record(
        tuple(trial.words),
        out,
        RecordingOptions(rate=10.0 if trial.windows else 2.0, windows=trial.windows),
        trial={"steps": trial.steps, "seed": trial.seed, "nudged": trial.nudged, "changes": trial.changes},
    )


def _kept_offline(trial: TrialProcess) -> dict[str, str]:
    """Return the variables that keep trackers and hubs on this machine."""
    settings = {**_OFFLINE, "MLFLOW_TRACKING_URI": (Path(trial.out).absolute() / "mlruns").as_uri()}
    if not (trial.in_place or trial.network):  # use cached files without checking for newer ones
        settings |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    return settings


def project(folder: Path) -> Path:
    """Return the program's project folder: the top of the Git repository, else the folder itself."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
