"""Run py-spy next to the training process, a stretch of seconds at a time, and sum up what it sees.

Nothing is added to the training process: py-spy reads its memory, and does not stop it (`--nonblocking`). One process
of the node is sampled, and one of its loader workers at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from profiler.recorder.stacks.frames import Frame, read
from profiler.schema import Stack, Step

OFF = "PROFILE_TRAIN_STACKS"
"""The variable that switches the sampler off where it is "0"."""

# A sample costs about a millisecond of a core, and py-spy's start some fifty. Short programs get more samples.
FIRST = (6.0, 20)
LATER = (20.0, 10)
"""Seconds of a stretch, and samples a second."""

MOST_STACKS = 600
"""Different stacks kept of a process; the rest is counted without its frames."""

MOST_FAILURES = 2
PATIENCE = 2.0
"""Seconds that py-spy has to write what it saw, once the program has ended."""

_PDEATHSIG = 1


def executable() -> str | None:
    """Return the path of py-spy: that of our own environment, else of the PATH."""
    installed = Path(sys.executable).parent / "py-spy"
    return str(installed) if os.access(installed, os.X_OK) else shutil.which("py-spy")


def _prepare() -> None:
    """End with the recorder, even if that is killed; take signals that the recorder blocks."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


@dataclass(slots=True)
class _Stretch:
    """A running py-spy, and the stretch of time that it samples."""

    process: subprocess.Popen[bytes]
    output: Path
    pid: int
    role: Literal["rank", "worker"]
    begin: float
    rate: int


class StackSampler:
    """The stacks of one training process of this node and of its workers."""

    def __init__(self, folder: Path, now: Callable[[], float], problem: Callable[[str, str], None]) -> None:
        """Prepare to sample into `folder`; `now` gives the run clock."""
        self._folder = folder
        self._now = now
        self._problem = problem
        self._program = executable()
        self._rank: int | None = None
        self._running: list[_Stretch] = []
        self._stretches = {"rank": 0, "worker": 0}
        self._failures = 0
        self._off = False
        self._turn = 0
        self._last = float("-inf")
        """End of the last step."""
        self._starts, self._ends = array("d"), array("d")
        """Of the steady steps that samples may still fall into."""
        self._waiting: list[tuple[float, float, str, str, tuple[Frame, ...]]] = []
        """Samples whose step has not ended: time, seconds, role, phase, frames."""
        self._sums: dict[tuple[str, str, bool, tuple[Frame, ...]], Stack] = {}
        self._changed: set[tuple[str, str, bool, tuple[Frame, ...]]] = set()
        self.cpu = 0.0
        """CPU seconds of all py-spy so far."""

    def note(self, step: Step) -> None:
        """Remember when a step of the sampled process ended."""
        if step.pid == self._rank:
            self._last = step.start + step.duration
            if not step.tags:
                self._starts.append(step.start)
                self._ends.append(self._last)

    def poll(self, ranks: Iterable[int], workers: Callable[[int], list[int]]) -> None:
        """Take what has been sampled, and begin the next stretch.

        `ranks` are the processes that train, the first one first; `workers` gives the workers of a process.
        """
        for stretch in [one for one in self._running if self._has_ended(one)]:
            self._take(stretch)
        if self._off:
            return
        if self._rank is None:
            self._rank = next(iter(ranks), None)
        if self._rank is None or not _exists(self._rank):
            return
        busy = {stretch.role for stretch in self._running}
        if "rank" not in busy:
            self._begin(self._rank, "rank")
        living = [] if "worker" in busy else workers(self._rank)
        if living and not self._off:
            self._turn += 1
            self._begin(living[self._turn % len(living)], "worker")

    def rows(self, *, final: bool = False) -> list[Stack]:
        """Return the stacks whose sums have changed since the last call."""
        self._settle(final=final)
        rows = [self._sums[key] for key in self._changed]
        self._changed.clear()
        return rows

    def close(self) -> None:
        """End every py-spy, and take what it has seen."""
        self._off = True
        deadline = time.monotonic() + PATIENCE
        for stretch in self._running:
            if _exists(stretch.pid):  # else it notices by itself
                with contextlib.suppress(OSError):
                    stretch.process.send_signal(signal.SIGINT)
        for stretch in list(self._running):
            while not self._has_ended(stretch):
                if time.monotonic() > deadline:
                    stretch.process.kill()
                time.sleep(0.01)
            self._take(stretch)

    # ---- one stretch ----

    def _begin(self, pid: int, role: Literal["rank", "worker"]) -> None:
        if self._program is None:
            self._give_up("py-spy was not found: pip install py-spy")
            return
        seconds, rate = LATER if self._stretches[role] else FIRST
        self._stretches[role] += 1
        output = self._folder / f"stacks-{role}.json"
        words = ["record", "--pid", str(pid), "--rate", str(rate), "--duration", f"{seconds:.0f}", "--output"]
        options = ["--format", "chrometrace", "--nonblocking", "--idle", "--threads", "--full-filenames"]
        try:
            with open(output.with_suffix(".log"), "wb") as log:
                process = subprocess.Popen(
                    [self._program, *words, str(output), *options],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the program
                    preexec_fn=_prepare,
                )
        except (OSError, subprocess.SubprocessError) as error:
            self._give_up(str(error))
            return
        self._running.append(_Stretch(process, output, pid, role, self._now(), rate))

    def _has_ended(self, stretch: _Stretch) -> bool:
        """Return whether py-spy has ended; its CPU time is then counted."""
        if stretch.process.returncode is not None:
            return True
        try:
            pid, status, usage = os.wait4(stretch.process.pid, os.WNOHANG)
        except ChildProcessError:
            stretch.process.returncode = -1
            return True
        if pid:
            stretch.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu += usage.ru_utime + usage.ru_stime
        return bool(pid)

    def _take(self, stretch: _Stretch) -> None:
        self._running.remove(stretch)
        log = stretch.output.with_suffix(".log")
        seen = False
        try:
            for span in read(stretch.output.read_text(errors="replace"), stretch.pid, worker=stretch.role == "worker"):
                seen = True
                number = max(1, round((span.end - span.start) * stretch.rate))
                each = (span.end - span.start) / number
                for at in range(number):
                    time_of_it = stretch.begin + span.start + (at + 0.5) * each
                    self._waiting.append((time_of_it, each, stretch.role, span.phase, span.frames))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        if seen:
            self._failures = 0
        elif _exists(stretch.pid) and not self._off:
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                self._give_up(_reason(log))
        for path in (stretch.output, log):
            with contextlib.suppress(OSError):
                path.unlink()

    def _give_up(self, reason: str) -> None:
        self._off = True
        self._problem("stacks", f"Python stacks were not sampled: {reason.rstrip('.')}.")

    # ---- sums ----

    def _settle(self, *, final: bool) -> None:
        """Add the samples whose step is known: those before the end of the last step."""
        left = []
        for sample in self._waiting:
            moment, seconds, role, phase, frames = sample
            if moment > self._last and not final:
                left.append(sample)
                continue
            at = bisect_right(self._starts, moment) - 1
            self._add(role, phase, at >= 0 and moment < self._ends[at], frames, seconds)
        self._waiting = left
        coming = [stretch.begin for stretch in self._running]
        over = bisect_left(self._ends, min([*coming, *(moment for moment, *_ in left)], default=self._now()))
        del self._starts[:over], self._ends[:over]

    def _add(self, role: str, phase: str, steady: bool, frames: tuple[Frame, ...], seconds: float) -> None:
        key = role, phase, steady, frames
        if key not in self._sums and len(self._sums) >= MOST_STACKS:
            key = role, phase, steady, ()
        before = self._sums.get(key)
        assert self._rank is not None
        self._sums[key] = Stack(
            pid=self._rank,
            id=before.id if before else len(self._sums),
            role="worker" if role == "worker" else "rank",
            phase=phase,
            steady=steady,
            frames=key[3],
            total=seconds + (before.total if before else 0.0),
            samples=1 + (before.samples if before else 0),
        )
        self._changed.add(key)


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _reason(log: Path) -> str:
    """Return why py-spy saw nothing, as a sentence that says what to do."""
    try:
        said = log.read_text(errors="replace")
    except OSError:
        said = ""
    scope = _scope()
    if "ermission" in said or "EPERM" in said or "not permitted" in said:
        by = f" (kernel.yama.ptrace_scope is {scope})" if scope not in (None, "0") else ""
        return f"the kernel does not let us read the program's memory{by}. `profile-train doctor` says how to allow it"
    # A backtrace of Rust's may follow, whose frames name errors, too.
    lines = [line.removeprefix("Error: ") for line in said.splitlines() if line.startswith("Error: ")]
    return f"py-spy failed ({lines[0].strip()[:200]})" if lines else "py-spy saw no Python stack"


def _scope() -> str | None:
    try:
        return Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        return None


def wanted() -> bool:
    """Return whether the environment leaves the sampler on."""
    return os.environ.get(OFF) != "0"
