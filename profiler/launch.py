"""Start the program with the agent in, and end as it ends.

The program is run by the plain interpreter or launcher, as without us: what is added is one folder on PYTHONPATH and
one variable with the agent's settings, which every child process inherits.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from profiler.errors import ProfilerError
from profiler.recorder import folder as place
from profiler.recorder.job import job as the_job

WAY_IN = Path(__file__).absolute().parent / "agent" / "way_in"
VARIABLE = "PROFILE_TRAIN_AGENT"

# What a terminal, a scheduler or a user sends to end or talk to a program. Those sent to us alone are passed on.
RELAYED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)

# Those of them by which a program is asked to end. It may do so in its own way, with any exit status.
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

# Seconds for which a program must have been stopped to be told of.
NOTABLE_STOP = 0.5


def program(words: tuple[str, ...]) -> list[str]:
    """The command line that runs `words`: a script or `-m module` with Python, anything else as it stands.

    Raises ProfilerError if there is no such script or command.
    """
    if not words or not words[0]:
        raise ProfilerError("There is nothing to run.", "Try: profile-train train.py")
    first = words[0]
    if first.startswith("-m"):
        if words == ("-m",):
            raise ProfilerError("-m needs a module.", "Try: profile-train -m package.module")
        return [python(), *words]
    path = Path(first)
    if os.sep in first and _says_with_what(path) and os.access(path, os.X_OK):
        return list(words)
    if first.endswith(".py") or (path / "__main__.py").exists():
        if not path.exists():
            raise ProfilerError(f"There is no script {first!r} here.", "Check the path.")
        return [python(), *words]
    found = shutil.which(first) or (first if path.is_file() and os.access(path, os.X_OK) else None)
    if found is not None:
        return [found, *words[1:]]
    if path.is_dir():
        raise ProfilerError(f"{first!r} is a folder without a __main__.py.", "Name the script in it.")
    if not path.exists():
        raise ProfilerError(
            f"There is no script and no command {first!r}.", "Check the name, or activate its environment."
        )
    if b"python" not in (_says_with_what(path) or b"python"):
        raise ProfilerError(
            f"{first!r} cannot be executed.", f"Use chmod +x, or say with what it is run: profile-train sh {first}"
        )
    return [python(), *words]


def _says_with_what(path: Path) -> bytes | None:
    """The interpreter that the first line of a script names; None if it names none."""
    try:
        with path.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    return first[2:] if first.startswith(b"#!") else None


def python() -> str:
    """The interpreter `python` would mean to the user: of the active environment, else our own."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = os.environ.get(variable)
        if prefix:
            candidate = Path(prefix) / "bin" / "python"
            if candidate.exists():
                return str(candidate)
    return sys.executable


def environment(
    rings: Path,
    windows: Path | None,
    budget: float,
    trial: Mapping[str, object] | None = None,
    folder: Path | None = None,
) -> dict[str, str]:
    """Our environment, with the way in. `trial` is what the agent is to change, and when to end (agent/trial.py);
    `folder` the run's, for a program that asks for its own result.

    Raises ProfilerError if Python would read our folder's name as those of two, which might be anybody's.
    """
    if os.pathsep in str(WAY_IN):
        raise ProfilerError(
            f"profile-train is installed under a name with {os.pathsep!r} in it: {WAY_IN}.", "Install it elsewhere."
        )
    result = dict(os.environ)
    before = result.get("PYTHONPATH")
    result["PYTHONPATH"] = str(WAY_IN) + (os.pathsep + before if before else "")
    settings = {"rings": str(rings), "windows": str(windows) if windows is not None else None, "budget": budget}
    if folder is not None:
        settings["folder"] = str(folder.absolute())
    result[VARIABLE] = json.dumps(settings if trial is None else {**settings, "trial": trial})
    return result


class Child:
    """The running program."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        """Raises ProfilerError if it cannot be started."""
        # Blocked before the start and taken by `wait`, so that none is lost in between; the program gets the mask
        # and the dispositions that we were given.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [*RELAYED, signal.SIGCHLD])
        try:
            self.pid = os.posix_spawn(
                argv[0], argv, env, setsigmask=self._mask, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            raise ProfilerError(
                f"{argv[0]} could not be started: {error.strerror}.", "Check that it can be run."
            ) from None
        self._witness = Witness.called()
        self.status: int | None = None
        """As `os.waitpid` gives it, once the program has ended."""
        self.asked: tuple[int, float] | None = None
        """The last signal seen that asked it to end, and when: seconds of `time.perf_counter`."""
        self.stopped = 0.0
        """Seconds for which it was stopped, as by SIGSTOP."""
        self._stopped_at: float | None = None

    def wait(self, seconds: float) -> bool:
        """Pass signals on for at most that long; True once the program has ended."""
        info = signal.sigtimedwait([*RELAYED, signal.SIGCHLD], seconds)
        if info is not None and info.si_signo in ASKING:
            self.asked = info.si_signo, time.perf_counter()
        if info is not None and info.si_signo != signal.SIGCHLD and not self._has_it_too(info):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, info.si_signo)
        return self._reap()

    def _has_it_too(self, info: signal.struct_siginfo) -> bool:
        """The kernel has sent it, as Ctrl-C does, to the whole foreground group; or somebody has, to every process."""
        # Asked in either case, so that its word on this one is not taken for one on the next.
        seen = self._witness is not None and self._witness.saw(info.si_signo)
        return seen or info.si_code > 0

    def _reap(self) -> bool:
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid != self.pid:
                break
            now = time.perf_counter()
            if self._stopped_at is not None:
                self.stopped += now - self._stopped_at
            self._stopped_at = now if os.WIFSTOPPED(status) else None
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self.status = status
        return self.status is not None

    def release_signals(self) -> None:
        """From here on signals are ours again: Ctrl-C ends the report."""
        if self._witness is not None:
            self._witness.dismiss()
        while signal.sigtimedwait([*RELAYED, signal.SIGCHLD], 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


class Witness:
    """A process beside us that nobody has a reason to signal: what reaches it was sent to the whole group or job, as by
    `kill -- -PGID`, `timeout` or a scheduler. The program then has it already, and a second SIGTERM or SIGINT would
    break into what it does about the first."""

    MOMENT = 0.1
    """Seconds that such a sender takes from one process to the next."""

    def __init__(self, pid: int, said: int) -> None:
        self._pid = pid
        self._said = said

    @classmethod
    def called(cls) -> Witness | None:
        """None where there is no process to be had. The relayed signals are blocked already."""
        try:
            said, saying = os.pipe()
        except OSError:
            return None
        us = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(said)
            os.close(saying)
            return None
        if pid == 0:
            _watch_signals(us, saying)
        os.close(saying)
        return cls(pid, said)

    def saw(self, number: int) -> bool:
        """Whether the signal has reached it, too, or does so in a moment."""
        deadline = time.monotonic() + self.MOMENT
        while select.select([self._said], [], [], max(0.0, deadline - time.monotonic()))[0]:
            told = os.read(self._said, 1)
            if told in (b"", bytes([number])):
                return bool(told)
        return False

    def dismiss(self) -> None:
        """It is needed no longer."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._said)


def _watch_signals(us: int, saying: int) -> NoReturn:
    """What the witness does, until we are gone."""
    try:
        for stream in (0, 1, 2):  # whoever reads our output waits for its end
            os.close(stream)
        while os.getppid() == us:
            info = signal.sigtimedwait(RELAYED, 5.0)
            if info is not None:
                os.write(saying, bytes([info.si_signo]))
    finally:
        os._exit(0)


def exit_code(status: int) -> int:
    """As a shell would show it."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def end_like(status: int) -> None:
    """End this process as the program ended: by the same signal or with the same exit status. Does not return."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # whoever read it is gone; or it was never open
            stream.flush()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource

        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core dump is enough, and it is the program's
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A program that has been run and recorded."""

    folder: Path | None
    """None if nothing could be recorded: the program was run all the same."""
    status: int
    """As `os.waitpid` gives it."""
    notes: tuple[str, ...] = ()
    """What the user should know about the recording, a sentence each."""


def record(
    words: tuple[str, ...],
    out: Path | None,
    *,
    budget: float = 0.01,
    rate: float = 10.0,
    windows: bool = True,
    trial: Mapping[str, object] | None = None,
) -> Recorded:
    """Run the program and record it to its end; where there is no place for a recording, only run it.

    Raises ProfilerError only if the program cannot be started.
    """
    _hold_standard_streams()
    argv = program(words)
    name = words[1] if words[0] == "-m" else words[0]
    job = the_job(words, os.environ, os.uname().nodename)
    try:
        seat = place.join(out, name, job)
        folder, part = seat.folder, seat.part
        rings = place.make_rings(folder.absolute(), part)  # the program may change its folder
    except ProfilerError as error:
        return _run_only(argv, f"Nothing is recorded. {error}")
    try:
        window_folder = place.make_windows(folder, part) if windows else None
        env = environment(rings, window_folder, budget, trial, folder)
    except ProfilerError as error:
        place.forget(folder, rings, part)
        return _run_only(argv, f"Nothing is recorded. {error}")
    notes = [seat.told] if seat.told else []
    origin = time.perf_counter_ns()
    try:
        child = Child(argv, env)
    except ProfilerError:
        place.forget(folder, rings, part)
        raise
    try:
        _watch(child, seat, rings, tuple(words), origin, budget, rate, job.id)
    except Exception as error:  # noqa: BLE001 - the program is running: whatever befalls us, it is waited for
        notes.append(f"The recording stopped: {error}")
        while not child.wait(1.0):
            pass
    child.release_signals()
    assert child.status is not None
    return Recorded(folder=folder, status=child.status, notes=tuple(notes))


def _run_only(argv: list[str], note: str) -> Recorded:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"profile-train: {note}\n")  # and again at the end, which may be days away
    child = Child(argv, dict(os.environ))
    while not child.wait(1.0):
        pass
    child.release_signals()
    assert child.status is not None
    return Recorded(folder=None, status=child.status, notes=(note,))


def _hold_standard_streams() -> None:
    """Where we were started without one of them, a file of ours must not take its number. The program does not get
    what we put in their place, which is closed as it starts."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def _watch(
    child: Child,
    seat: place.Seat,
    rings: Path,
    words: tuple[str, ...],
    origin: int,
    budget: float,
    rate: float,
    job: str,
) -> None:
    # Imported only now: the program starts that much sooner.
    from profiler.recorder.ending import Asked
    from profiler.recorder.record import Recorder, new_run

    with contextlib.suppress(OSError):
        os.nice(5)  # on a machine with no core to spare, the program goes first
    run = new_run(words, origin, budget, job)
    recorder = Recorder(seat.folder, rings, run, child.pid, origin=origin, rate=rate, part=seat.part)
    while not child.wait(recorder.poll()):
        pass
    status = child.status
    assert status is not None
    asked = Asked(child.asked[0], time.perf_counter() - child.asked[1]) if child.asked else None
    if child.stopped >= NOTABLE_STOP:
        recorder.problem(
            "program",
            f"The program was stopped for {child.stopped:.0f} s, as by SIGSTOP or Ctrl-Z: "
            "the steps of that time are longer by as much.",
        )
    code = exit_code(status)
    killed = os.WIFSIGNALED(status)
    recorder.finish(
        "killed" if killed else "completed" if code == 0 else "failed",
        code,
        os.WTERMSIG(status) if killed else None,
        asked,
    )
