"""Record a running program: install the hooks, record for a while, remove the hooks."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from profiler import launch
from profiler.agent.redact import redact_command
from profiler.attach import rights, target
from profiler.attach.inject import LONG, PATIENCE, Injector
from profiler.errors import ProfilerError
from profiler.options import RecordingOptions
from profiler.printable import say
from profiler.recorder import folder as run_folder
from profiler.recorder.record import Recorder, new_run

_END = {"act": "end"}

OUTSIDE = "Recorded only from outside, without hooks: steps, phases, kernels and the DataLoader were not measured."

_NO_RANK = {"worker": "is a DataLoader worker", "no torch": "has not imported torch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted(RecordingOptions):
    """The options of a recording of a running process."""

    pid: int
    out: Path | None = None
    seconds: float | None = None
    steps: int | None = None
    """Recording ends after this many steps, after `seconds`, or when the user stops it."""
    tree: bool = False
    """Whether to record every rank below that process."""
    outside: bool = False
    """Whether to record without installing hooks."""


def _hook(pid: int, settings: dict[str, object], hooked: list[Injector], asked: list[int]) -> str | None:
    """Install the hooks in a process; return why not if it is not part of the run, else None.

    Raises:
        ProfilerError: the process cannot take hooks.
        PermissionError: the process may not be accessed.
        KeyboardInterrupt: the user asked to stop.
    """
    injector = Injector(pid)
    try:
        answer = injector.ask({"act": "begin", "settings": settings}, PATIENCE, _waits(pid, asked))
    except TimeoutError as error:
        injector.close()
        raise ProfilerError(
            f"Process {pid} did not accept hooks within {PATIENCE:.0f} s: {error}.",
            "Nothing was left in it. Try again later: it may be loading, compiling, in a long step, or recording "
            "stacks with its own profiler.",
        ) from None
    except BaseException:
        with contextlib.suppress(OSError):
            injector.ask(_END, 1.0)
        injector.close()
        raise
    state = answer.get("state")
    if state == "in":
        hooked.append(injector)
        return None
    injector.close()
    if state == "interrupted":
        os.kill(pid, signal.SIGINT)  # it was meant for the program but reached us
        raise ProfilerError(
            f"Process {pid} is being interrupted.", "Nothing was recorded. Check whether the process continues."
        )
    if state == "recorded":
        recorder = answer.get("recorder")
        phrase = f"by process {recorder}" if recorder else "by profile-train"
        raise ProfilerError(
            f"Process {pid} is being recorded already, {phrase}.", "Wait until that recording ends, or end it."
        )
    if state == "compiled":
        raise ProfilerError(
            f"Process {pid} has a compiled optimizer step (torch.compile): with hooks, torch would recompile it, and "
            "the hooks would not see its steps.",
            rights.OUTSIDE.format(pid=pid),
        )
    if state in _NO_RANK:
        return _NO_RANK[state]
    raise ProfilerError(
        f"The hooks could not be installed in process {pid}: {answer.get('message')}.", rights.OUTSIDE.format(pid=pid)
    )


def _unhook(hooked: list[Injector]) -> list[str]:
    """Remove the hooks; return a sentence for each process where that did not work at once.

    Delete the rings afterwards: hooks that are still installed then remove themselves.
    """
    notes = []
    for injector in hooked:
        try:
            injector.ask(_END, 10.0)
        except TimeoutError as error:
            notes.append(
                f"Process {injector.pid} still has the hooks, because {error}; they remove themselves in its next "
                "steps."
            )
        except OSError:  # it has ended
            pass
        finally:
            injector.close()
    return notes


def record(wanted: Wanted) -> tuple[Path, tuple[str, ...]]:
    """Record and return the run folder and notes for the user.

    Raises:
        ProfilerError: nothing was recorded; nothing is left in the program either.
    """
    pid = wanted.pid
    try:
        target.check(pid, inject=not wanted.outside)
    except PermissionError:
        raise rights.refusal(pid) from None
    if not wanted.outside and not wanted.tree and not target.has_torch(pid):
        raise ProfilerError(
            f"Process {pid} has not loaded torch.", "For the PID of a launcher, use --all: it records all its ranks."
        )
    words = target.as_typed(target.command(pid))
    if wanted.outside:
        wanted = replace(wanted, windows=False)
    seat, rings, settings = launch.begin(wanted.out, launch.run_name(words), None, wanted, recorder=os.getpid())
    notes = [seat.notice] if seat.notice else []
    injectors: list[Injector] = []
    with _stop_signals() as signals:
        try:
            notes += _begin(wanted, settings, injectors, signals)
            origin = time.perf_counter_ns()
            run = new_run(redact_command(words), origin, wanted.budget, cwd=target.folder(pid))
            run = replace(run, user=None, commit=None)  # the user is ours, and the commit may have changed
            recorder = Recorder(seat.folder, rings, run, pid, wanted, origin=origin)
        except BaseException:
            _unhook(injectors)
            run_folder.leave(seat, rings)
            raise
        has_ended = False
        try:
            if wanted.outside:
                recorder.problem("attach", OUTSIDE)
            say(f"recording process {pid}" + _until(wanted) + "; Ctrl-C ends the recording, not the program.")
            has_ended = _watch(recorder, wanted, signals)
        finally:
            notes += _unhook(injectors)
        recorder.finish(None if has_ended and not wanted.outside else "attached")
        run_folder.settle(seat.earlier, completed=True)
    return seat.folder, tuple(notes)


def _begin(wanted: Wanted, settings: dict[str, object], hooked: list[Injector], asked: list[int]) -> list[str]:
    if wanted.outside:
        return []
    candidates = target.ranks(wanted.pid) if wanted.tree else [wanted.pid]
    notes = []
    for pid in candidates:
        try:
            # One rank's windows represent all. Ranks wait for each other, so windows in every rank would slow all.
            reason = _hook(pid, {**settings, "windows": None} if hooked else settings, hooked, asked)
        except PermissionError:
            raise rights.refusal(pid) from None
        except ProcessLookupError:
            reason = "has ended"
        except OSError as error:
            reason = f"could not be attached to ({error})"
        except ProfilerError as error:
            if pid == wanted.pid or len(candidates) == 1:
                raise
            reason = f"is left out: {error}"
        if reason is not None:
            notes.append(f"Process {pid} {reason}.")
    if not hooked:
        raise ProfilerError(" ".join(notes) or f"There is no rank below process {wanted.pid}.", "Nothing was recorded.")
    return notes if not wanted.tree else [note for note in notes if "left out" in note or "could not" in note]


def _watch(recorder: Recorder, wanted: Wanted, asked: list[int]) -> bool:
    """Record until an end condition is met; return True if the program ended before."""
    start = run_folder.started(wanted.pid)
    while run_folder.is_alive(wanted.pid, start):
        delay = recorder.poll()
        is_enough = wanted.steps is not None and recorder.steps >= wanted.steps
        seconds_left = float("inf") if wanted.seconds is None else wanted.seconds - recorder.now
        if asked or is_enough or seconds_left <= 0:
            return False
        time.sleep(min(delay, max(0.0, seconds_left)))
    return True


def _until(wanted: Wanted) -> str:
    limits = []
    if wanted.seconds is not None:
        limits.append(f"for {wanted.seconds:g} s")
    if wanted.steps is not None:
        limits.append("for 1 step" if wanted.steps == 1 else f"for {wanted.steps} steps")
    return " " + " or ".join(limits) if limits else ""


def _waits(pid: int, asked: list[int]) -> Callable[[str], None]:
    """Return a callback that reports the reason once if a wait takes longer than LONG seconds."""
    start, reported = time.monotonic(), False

    def wait(why: str) -> None:
        nonlocal reported
        if asked:
            raise KeyboardInterrupt
        if not reported and time.monotonic() - start > LONG:
            reported = True
            say(f"waiting for process {pid}: {why}.")

    return wait


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Make Ctrl-C and similar signals end the recording, not this command; yield the list of received ones."""
    signals: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.signal(number, lambda number, _: signals.append(number)) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
