"""Start the program with the agent, and end as the program ends.

The plain interpreter or launcher runs the program, exactly as without profile-train. The only additions are one folder
on PYTHONPATH and one variable with the agent's settings, which every child process inherits.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import itertools
import json
import mmap
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from profiler.errors import ProfilerError
from profiler.options import DEFAULTS, RecordingOptions
from profiler.printable import say
from profiler.recorder import folder as run_folder
from profiler.recorder.job import Job
from profiler.recorder.job import job as the_job
from profiler.signals import AWAITED, PASSED_ON, Signals, exit_code

BOOTSTRAP = Path(__file__).absolute().parent / "agent" / "bootstrap"
VARIABLE = "PROFILE_TRAIN_AGENT"

# Signals that the kernel sends to one process because of its own actions.
_OWN = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGXCPU)

# Signals of timers that a caller set before it became this process by exec, as in `perl -e 'alarm 10; exec @ARGV'`.
_TIMERS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)

# Signals that ask a program to end. It may then end in its own way, with any exit status.
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

# Minimum total seconds for which the program was stopped to report it to the user.
NOTABLE_STOP = 0.5


def program(words: tuple[str, ...]) -> list[str]:
    """Return the command line that runs `words`.

    A script or `-m module` runs with Python, anything else as is.

    Raises:
        ProfilerError: there is no such script or command.
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
            remedy = f"Leave out the quotes: profile-train {first}" if " " in first else "Check the path."
            raise ProfilerError(f"There is no script {first!r} here.", remedy)
        return [python(), *words]
    executable = shutil.which(first) or (first if path.is_file() and os.access(path, os.X_OK) else None)
    if executable is not None:
        return [executable, *words[1:]]
    if path.is_dir():
        raise ProfilerError(f"{first!r} is a folder without a __main__.py.", "Name the script in it.")
    if " " in first and not path.exists():
        raise ProfilerError(f"{first!r} is one word with spaces in it.", f"Leave out the quotes: profile-train {first}")
    if not path.exists():
        raise ProfilerError(
            f"There is no script and no command {first!r}.", "Check the name, or activate its environment."
        )
    if b"python" not in (_says_with_what(path) or b"python"):
        raise ProfilerError(
            f"{first!r} cannot be executed.",
            f"Use chmod +x, or name the program that runs it: profile-train sh {first}",
        )
    return [python(), *words]


def run_name(words: tuple[str, ...]) -> str:
    """Return the name for a run of these words: a script or module, also behind an interpreter."""
    first = words[0] if words else "python"
    if not (first.startswith("-m") or Path(first).name.startswith("python")):
        return first
    for previous, word in itertools.pairwise(("", *words)):
        if previous == "-m" or word.endswith(".py"):
            return word
        if word.startswith("-m") and word != "-m":  # in one word, which Python accepts, too
            return word[2:]
    return first


def _says_with_what(path: Path) -> bytes | None:
    """Return the interpreter that the first line of a script names; None if it names none."""
    try:
        with path.open("rb") as file:
            line = file.readline(256)
    except OSError:
        return None
    return line[2:] if line.startswith(b"#!") else None


def python() -> str:
    """Return the interpreter that runs the program: the active environment's, else ours, else `python` on PATH.

    Ours is skipped if it has no torch: a separate environment for the tool, as pipx makes, is not for training.
    """
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = os.environ.get(variable)
        if prefix:
            candidate = Path(prefix) / "bin" / "python"
            if candidate.exists():
                return str(candidate)
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    return shutil.which("python") or shutil.which("python3") or sys.executable


def begin(
    out: Path | None, name: str, job: Job | None, options: RecordingOptions, **more: object
) -> tuple[run_folder.Seat, Path, dict[str, object]]:
    """Return the place of a recording, the folder of its rings, and the agent's settings.

    `more` may hold `trial`, the changes and the number of steps (agent/trial.py); `tracer`, the process that samples
    the program's stacks; `recorder`, the process that attaches. The setting `folder` is for a program that requests its
    own result.

    Raises:
        ProfilerError: there is no place for it; nothing is left behind.
    """
    seat = run_folder.join(out, name, job)
    folder = seat.folder.absolute()  # the program may change its working directory
    rings = None
    try:
        rings = run_folder.make_rings(folder, seat.part)
        windows = str(run_folder.make_windows(folder, seat.part)) if options.windows else None
    except ProfilerError:
        run_folder.leave(seat, rings)
        raise
    if warning := seat.warning:
        say(warning)
    settings = {"rings": str(rings), "windows": windows, "budget": options.budget, "folder": str(folder), **more}
    return seat, rings, settings


def variables(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the variables for the program that add the agent's entry point and settings to its environment.

    Raises:
        NotRecorded: the installation path contains the PYTHONPATH separator, so Python would read it as two folders.
    """
    if os.pathsep in str(BOOTSTRAP):
        raise NotRecorded(
            f"profile-train is installed in a folder whose path contains {os.pathsep!r}: {BOOTSTRAP}.",
            "Install it elsewhere.",
        )
    path = os.pathsep.join(filter(None, (str(BOOTSTRAP), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, VARIABLE: json.dumps(settings)}


class NotRecorded(ProfilerError):
    """The program can be run, but not recorded."""


def _not_started(argv: list[str], error: OSError) -> ProfilerError:
    return ProfilerError(f"{argv[0]} could not be started: {error.strerror}.", "Check that it can be run.")


class Child:
    """The program, as a child of this process."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        """Start the program.

        Raises:
            NotRecorded: the user's process limit is reached (RLIMIT_NPROC), or the environment exceeds what the kernel
                accepts (E2BIG).
            ProfilerError: it cannot be started.
        """
        # Signals are blocked before the start and handled by `wait`, so that none is lost in between. The program gets
        # the mask and the dispositions that we were given.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
        self._signals = Signals(AWAITED)
        try:
            self.pid = os.posix_spawn(
                argv[0], argv, env, setsigmask=self._mask, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            if error.errno in (errno.EAGAIN, errno.ENOMEM):
                raise NotRecorded(f"The system cannot create another process: {error.strerror}.", "") from None
            if error.errno == errno.E2BIG:
                raise NotRecorded(
                    "Its arguments and environment leave no room for the variables that recording adds.", ""
                ) from None
            raise _not_started(argv, error) from None
        _let_go()
        self._witness: Witness | None = None
        with contextlib.suppress(OSError):  # then no further process can be created
            self._witness = Witness(self.pid)
        self.status: int | None = None
        """Wait status as `os.waitpid` returns it; None until the program has ended."""
        self.asked: tuple[int, float] | None = None
        """The last signal that asked the program to end, and when: seconds of `time.perf_counter`."""
        self.stopped = 0.0
        """Seconds for which the program was stopped, e.g. by SIGSTOP."""
        self._stopped_at: float | None = None

    def wait(self, seconds: float) -> bool:
        """Pass signals on for up to that many seconds; return whether the program has ended."""
        info = self._signals.next(seconds)
        if info is not None and info.si_signo in ASKING:
            self.asked = info.si_signo, time.perf_counter()
        if info is not None and info.si_signo != signal.SIGCHLD and not self._has_it_too(info):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, info.si_signo)
        return self._reap()

    def _has_it_too(self, info: signal.struct_siginfo) -> bool:
        """Return whether the program has received this signal as well, or must not receive it.

        That is so if the kernel sent it to the whole foreground group (Ctrl-C), if it is due to profile-train's own
        actions, or if someone sent it to every process.
        """
        if info.si_signo in _OWN and (info.si_code > 0 or info.si_pid == os.getpid()):
            return True
        # Query the witness in either case, so that its report of this signal is not taken for the next one.
        is_witnessed = self._witness is not None and self._witness.saw(info.si_signo)
        return is_witnessed or (info.si_code > 0 and info.si_signo not in _TIMERS)

    def _reap(self) -> bool:
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid != self.pid:
                break
            now = time.perf_counter()
            if self._stopped_at is not None:
                self.stopped += now - self._stopped_at
            self._stopped_at = now if os.WIFSTOPPED(status) else None
            if os.WIFSTOPPED(status) and self._witness is not None and signal.SIGCONT not in signal.sigpending():
                self._witness.stop_us()
                if signal.sigtimedwait([signal.SIGCONT], 0) is not None and run_folder.state(self.pid) == "T":
                    os.kill(self.pid, signal.SIGCONT)
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self.status = status
        return self.status is not None

    def finish(self) -> int:
        """Wait for the program's end, and return its wait status. From here on Ctrl-C ends the report, as usual."""
        while self.status is None:
            self.wait(1.0)
        if self._witness is not None:
            self._witness.dismiss()
        while signal.sigtimedwait(AWAITED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return self.status


class Witness:
    """A helper process that shows whether a signal was sent to the whole process group.

    No one has a reason to signal it alone. Signals that reach it were sent to the whole group or job, e.g. by
    `kill -- -PGID`, `timeout` or a scheduler. The program then has the signal already, and a second SIGTERM or SIGINT
    would disturb how it handles the first.
    """

    MOMENT = 0.1
    """Maximum seconds that such a sender takes from one process to the next."""
    RECENT = 1.0
    """Seconds for which a seen signal counts: several may arrive at once, in any order."""

    def __init__(self, program: int) -> None:
        """Start the helper. Block the relayed signals before calling this.

        Raises:
            OSError: no process can be created.
        """
        own_pid = os.getpid()
        self._seen: dict[int, float] = {}
        self._following = mmap.mmap(-1, 1)
        self._said, write_end = os.pipe()
        try:
            self._pid = os.fork()
            if self._pid == 0:
                self._relay(own_pid, program, write_end)
        except OSError:
            os.close(self._said)
            raise
        finally:
            os.close(write_end)

    def stop_us(self) -> None:
        """Stop this process as the program has stopped, so that the waiting shell gets the terminal back.

        This process continues when it is continued, or soon after the program is.
        """
        self._following[0] = 1
        os.kill(os.getpid(), signal.SIGSTOP)
        self._following[0] = 0

    def saw(self, number: int) -> bool:
        """Return whether the signal reached the helper, too, or does so within MOMENT."""
        deadline = time.monotonic() + self.MOMENT
        while True:
            now = time.monotonic()
            if now - self._seen.pop(number, -self.RECENT) < self.RECENT:
                return True
            if not select.select([self._said], [], [], max(0.0, deadline - now))[0]:
                return False
            numbers = os.read(self._said, 64)
            if not numbers:
                return False
            self._seen |= dict.fromkeys(numbers, time.monotonic())

    def dismiss(self) -> None:
        """End the helper process, and reap it."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._said)

    def _relay(self, us: int, program: int, saying: int) -> NoReturn:
        """Run the helper process until its parent is gone."""
        try:
            for number in map(int, os.listdir("/proc/self/fd")):
                if number != saying:  # a reader of our output waits for its end
                    with contextlib.suppress(OSError):
                        os.close(number)
            signals = Signals(PASSED_ON)
            while os.getppid() == us:
                info = signals.next(0.5)
                if info is not None:
                    os.write(saying, bytes([info.si_signo]))
                if self._following[0] and run_folder.state(us) == "T" != run_folder.state(program):
                    os.kill(us, signal.SIGCONT)
        finally:
            os._exit(0)


def _let_go() -> None:
    """Close inherited files except stderr and terminals.

    A reader at the other end of a pipe, or a process waiting for a lock, must notice when the program releases it. The
    program already has its own copies.
    """
    for number in (0, 1):
        if not os.isatty(number):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, number, inheritable=True)
            os.close(null)
    with contextlib.suppress(OSError):
        for number in sorted(map(int, os.listdir("/proc/self/fd"))):
            with contextlib.suppress(OSError):
                if number > 2 and os.get_inheritable(number):  # files opened by Python are not
                    os.close(number)


def end_like(status: int) -> None:
    """End this process as the program ended: by the same signal or with the same exit status. It does not return."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # its reader is gone, or it was never open
            stream.flush()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource

        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's core dump is enough
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The outcome of a program that was run and recorded."""

    folder: Path | None
    """The run folder; None if the program ran but nothing could be recorded."""
    status: int
    """Wait status as `os.waitpid` returns it."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the recording, one sentence each."""


def record(
    words: tuple[str, ...],
    out: Path | None,
    options: RecordingOptions = DEFAULTS,
    trial: Mapping[str, object] | None = None,
) -> Recorded:
    """Run the program and record it to its end; if nothing can be recorded, only run it.

    Raises:
        ProfilerError: the program cannot be started.
    """
    _hold_standard_streams()
    if trial is not None and trial["steps"] is not None:
        options = replace(options, stacks=False)
    argv = program(words)
    job = the_job(words, os.environ, os.uname().nodename)
    tracer = os.getpid() if options.stacks else None
    try:
        seat, rings, settings = begin(out, run_name(words), job, options, trial=trial, tracer=tracer)
    except ProfilerError as error:
        return _run_only(argv, error)
    notes = [seat.notice] if seat.notice else []
    origin = time.perf_counter_ns()
    try:
        child = Child(argv, {**os.environ, **variables(settings)})
    except ProfilerError as error:
        run_folder.leave(seat, rings)
        if isinstance(error, NotRecorded):
            return _run_only(argv, error)
        raise
    try:
        _watch(child, seat, rings, words, origin, job.id, options)
    except Exception as error:  # noqa: BLE001 - the program is running: wait for it whatever happens
        notes.append(f"The recording stopped: {error}")
    status = child.finish()
    if notice := run_folder.settle(seat.earlier, completed=exit_code(status) == 0):
        notes.append(notice)
    if exit_code(status) == 1 and argv[0] == python() and not _has_torch(argv[0]):
        notes.append(
            f"{argv[0]}, which ran the program, has no torch. Activate the program's environment, or install torch."
        )
    return Recorded(folder=seat.folder, status=status, notes=tuple(notes))


def _has_torch(interpreter: str) -> bool:
    """Return whether this Python finds torch; True if that cannot be determined."""
    import subprocess  # rarely needed

    code = "import importlib.util; print(importlib.util.find_spec('torch') is not None)"
    try:
        result = subprocess.run([interpreter, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return True
    return result.stdout.strip() != b"False"


def _run_only(argv: list[str], why: ProfilerError) -> Recorded:
    """Run the program unrecorded, in place of this process if no other can be created.

    Raises:
        ProfilerError: the program cannot be started.
    """
    note = f"Nothing is recorded. {why}"
    say(note)  # also shown at the end, which may be days away
    try:
        child = Child(argv, dict(os.environ))
    except NotRecorded:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execv(argv[0], argv)
        except OSError as error:
            raise _not_started(argv, error) from None
    return Recorded(folder=None, status=child.finish(), notes=(note,))


def _hold_standard_streams() -> None:
    """Fill missing standard streams, so that no file of the recorder gets their numbers.

    The program does not inherit the fillers, which are closed as it starts.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def _watch(
    child: Child,
    seat: run_folder.Seat,
    rings: Path,
    words: tuple[str, ...],
    origin: int,
    job: str,
    options: RecordingOptions,
) -> None:
    # Imported only now, so that the program starts sooner.
    from profiler.recorder.ending import Asked
    from profiler.recorder.record import Recorder, new_run

    with contextlib.suppress(OSError):
        os.nice(5)  # if cores are scarce, the program goes first
    run = new_run(words, origin, options.budget, job)
    recorder = Recorder(seat.folder, rings, run, child.pid, options, origin=origin, part=seat.part)
    while not child.wait(recorder.poll()):
        pass
    status = child.status
    assert status is not None
    request = Asked(child.asked[0], time.perf_counter() - child.asked[1]) if child.asked else None
    if child.stopped >= NOTABLE_STOP:
        recorder.problem(
            "program",
            f"The program was stopped for {child.stopped:.0f} s (for example by SIGSTOP or Ctrl-Z). Steps in that time "
            "are longer by that amount.",
        )
    code = exit_code(status)
    killed = os.WIFSIGNALED(status)
    recorder.finish(
        "killed" if killed else "completed" if code == 0 else "failed",
        code,
        os.WTERMSIG(status) if killed else None,
        request,
    )
