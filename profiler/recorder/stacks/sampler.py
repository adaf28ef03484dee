"""Run py-spy next to the training process, in stretches of some seconds, and sum up its samples.

Nothing is added to the training process: py-spy reads its memory without stopping it (`--nonblocking`). One rank of
the node is sampled at a time, mostly the first one, and one of its loader workers.
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
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from profiler.reading import text
from profiler.recorder.stacks.frames import Frame, read
from profiler.schema import Stack, Step

OFF = "PROFILE_TRAIN_STACKS"
"""Environment variable that switches the sampler off if it is "0"."""

# A sample costs about 1 ms of a core, and starting py-spy about 50 ms. Short programs get more samples.
FIRST = (6.0, 20)
LATER = (20.0, 10)
"""Seconds of a stretch, and samples per second."""

OTHER = (6.0, 10)
"""The same for another rank, which all may be waiting for, between two stretches of the first rank."""

MOST_STACKS = 600
"""Maximum distinct stacks kept per process; the rest is counted without frames."""

MOST_FAILURES = 2
PATIENCE = 2.0
"""Seconds that py-spy has to write its samples after the program has ended."""

_PDEATHSIG = 1


def executable() -> str | None:
    """Return the path of py-spy in our own environment, else on PATH; None if it is in neither."""
    candidate = Path(sys.executable).parent / "py-spy"
    return str(candidate) if os.access(candidate, os.X_OK) else shutil.which("py-spy")


def _prepare() -> None:
    """Make py-spy end with the recorder, even a killed one, and unblock signals that the recorder blocks."""
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


@dataclass(slots=True)
class _Steps:
    """The steady steps of a rank that samples may still fall into."""

    starts: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    last: float = float("-inf")
    """End of the last step, steady or not."""


class _Sample(NamedTuple):
    """A sample whose step has not ended."""

    time: float
    seconds: float
    pid: int
    """PID of the rank, also for a sample of its worker."""
    role: Literal["rank", "worker"]
    phase: str
    frames: tuple[Frame, ...]


_Key = tuple[int, str, str, bool, tuple[Frame, ...]]
"""PID, role, phase, whether steady, and frames."""


class StackSampler:
    """The stacks of the training processes of this node, and of the workers of the first one."""

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
        self._steps: dict[int, _Steps] = defaultdict(_Steps)
        self._waiting: list[_Sample] = []
        self._sums: dict[_Key, Stack] = {}
        self._kept: dict[int, int] = defaultdict(int)
        self._changed: set[_Key] = set()
        self.cpu = 0.0
        """CPU seconds of all py-spy processes so far."""

    def note(self, *ended: Step) -> None:
        """Remember when these steps ended."""
        for step in ended:
            steps = self._steps[step.pid]
            steps.last = step.start + step.duration
            if not step.tags:
                steps.starts.append(step.start)
                steps.ends.append(steps.last)

    def poll(self, ranks: Iterable[int], workers: Callable[[int], list[int]]) -> None:
        """Collect the samples, and begin the next stretch.

        `ranks` are the PIDs of the training processes in rank order; `workers` returns the workers of a process.
        """
        for stretch in [candidate for candidate in self._running if self._has_ended(candidate)]:
            self._take(stretch)
        if self._off:
            return
        ranks = list(ranks)
        if self._rank is None:
            self._rank = next(iter(ranks), None)
        if self._rank is None or not _exists(self._rank):
            return
        busy_roles = {stretch.role for stretch in self._running}
        if "rank" not in busy_roles:
            other_ranks = [pid for pid in ranks if pid != self._rank and _exists(pid)]
            turn, is_others = divmod(self._stretches["rank"], 2)
            self._begin(other_ranks[turn % len(other_ranks)] if other_ranks and is_others else self._rank, "rank")
        live_workers = [] if "worker" in busy_roles else workers(self._rank)
        if live_workers and not self._off:
            self._turn += 1
            self._begin(live_workers[self._turn % len(live_workers)], "worker")

    def rows(self, *, final: bool = False) -> list[Stack]:
        """Return the stacks whose sums have changed since the last call."""
        self._settle(final=final)
        rows = [self._sums[key] for key in self._changed]
        self._changed.clear()
        return rows

    def close(self) -> None:
        """End every py-spy, and collect its samples."""
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
        if role == "rank" and pid != self._rank:
            seconds, rate = OTHER
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
        has_samples = False
        try:
            for span in read(stretch.output.read_text(errors="replace"), stretch.pid, worker=stretch.role == "worker"):
                has_samples = True
                rank = stretch.pid if stretch.role == "rank" else self._rank
                assert rank is not None
                number = max(1, round((span.end - span.start) * stretch.rate))
                seconds = (span.end - span.start) / number
                for index in range(number):
                    sample_time = stretch.begin + span.start + (index + 0.5) * seconds
                    self._waiting.append(_Sample(sample_time, seconds, rank, stretch.role, span.phase, span.frames))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        if has_samples:
            self._failures = 0
        elif _exists(stretch.pid) and not self._off:
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                self._give_up(f"{_reason(text(log))}. `profile-train doctor` reports whether sampling is permitted")
        for path in (stretch.output, log):
            with contextlib.suppress(OSError):
                path.unlink()

    def _give_up(self, reason: str) -> None:
        self._off = True
        self._problem("stacks", f"Python stacks were not sampled: {reason.rstrip('.')}.")

    # ---- sums ----

    def _settle(self, *, final: bool) -> None:
        """Add the samples whose step is known: those before the end of the last step."""
        unsettled = []
        for sample in self._waiting:
            steps = self._steps[sample.pid]
            if sample.time > steps.last and not final:
                unsettled.append(sample)
                continue
            index = bisect_right(steps.starts, sample.time) - 1
            self._add(sample, index >= 0 and sample.time < steps.ends[index])
        self._waiting = unsettled
        earliest_begin = min((stretch.begin for stretch in self._running), default=self._now())
        # Per rank, because samples of a rank that no longer steps wait until the run ends.
        oldest_waiting: dict[int, float] = {}
        for sample in unsettled:
            oldest_waiting[sample.pid] = min(sample.time, oldest_waiting.get(sample.pid, sample.time))
        for pid, steps in self._steps.items():
            done_count = bisect_left(steps.ends, min(earliest_begin, oldest_waiting.get(pid, earliest_begin)))
            del steps.starts[:done_count], steps.ends[:done_count]

    def _add(self, sample: _Sample, steady: bool) -> None:
        _, seconds, pid, role, phase, frames = sample
        key = pid, role, phase, steady, frames
        if key not in self._sums and self._kept[pid] >= MOST_STACKS:
            key = pid, role, phase, steady, ()
        previous = self._sums.get(key)
        self._kept[pid] += previous is None
        self._sums[key] = Stack(
            pid=pid,
            id=previous.id if previous else len(self._sums),
            role=role,
            phase=phase,
            steady=steady,
            frames=key[4],
            total=seconds + (previous.total if previous else 0.0),
            samples=1 + (previous.samples if previous else 0),
        )
        self._changed.add(key)


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def refusal(program: str) -> str | None:
    """Return why py-spy cannot sample a Python process that it starts; None if it can.

    Settings do not show this: a security module, seccomp or a missing capability may also forbid it.
    """
    words = [program, "record", "--nonblocking", "--duration", "1", "--format", "raw", "--output", os.devnull]
    command = [*words, "--", sys.executable, "-c", "import time; time.sleep(0.3)"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return _reason(result.stderr) if result.returncode else None


def _reason(said: str) -> str:
    """Return why py-spy saw nothing, from its error output."""
    scope = text(Path("/proc/sys/kernel/yama/ptrace_scope")).strip()
    if "ermission" in said or "EPERM" in said or "not permitted" in said:
        cause = f" (kernel.yama.ptrace_scope is {scope})" if scope not in ("", "0") else ""
        return f"the kernel does not allow reading the program's memory{cause}"
    # A Rust backtrace may follow, whose frames mention errors, too.
    lines = [line.removeprefix("Error: ") for line in said.splitlines() if line.startswith("Error: ")]
    return f"py-spy failed ({lines[0].strip()[:200]})" if lines else "py-spy saw no Python stack"


def wanted() -> bool:
    """Return whether the environment leaves the sampler on."""
    return os.environ.get(OFF) != "0"
