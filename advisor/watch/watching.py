"""Look at a run repeatedly, using no more than a tenth of a core."""

import time
from contextlib import suppress
from pathlib import Path

from advisor.judging.judge import judge
from advisor.metrics.base import Goals, Metrics
from advisor.metrics.settings import primary_rank
from advisor.report.code import LEAST_SAMPLES
from advisor.runs.load import load
from advisor.runs.profile import Profile
from advisor.settings.own_rules import RuleSet
from advisor.watch.snapshot import Advised, Snapshot, advised, newest, snapshot
from profiler.errors import ProfilerError
from profiler.recorder import folder as run_folder
from profiler.schema import Stack

EVERY = 1.0
"""Least seconds between two looks."""

SHARE = 0.1
"""Largest share of one core. Reading a long run takes time, and the training may need the core."""

JUDGED_EVERY = 10.0
"""Least seconds between two judgments."""


def latest(runs: Path = Path(run_folder.DEFAULT)) -> Path:
    """Return the run that was written to last, preferring those that are still running.

    Raises:
        ProfilerError: there is no run.
    """
    folders = [folder for folder in runs.glob("*") if any(folder.glob("run-*.db"))] if runs.is_dir() else []
    if not folders:
        raise ProfilerError(f"There is no run in {runs}.", "Start one, or name its folder: profile-train watch RUN")
    return max(folders, key=lambda folder: (run_folder.is_running(folder), _written(folder)))


def _written(folder: Path) -> float:
    times = [0.0]
    for path in folder.glob("run-*.db*"):
        with suppress(FileNotFoundError):  # SQLite removes its log when the recorder ends
            times.append(path.stat().st_mtime)
    return max(times)


class LiveRun:
    """An observer of one run."""

    def __init__(self, folder: Path, rules: RuleSet, goals: Goals) -> None:
        self.folder = folder
        self.pause = EVERY
        """Seconds until the next look."""
        self._rules = rules
        self._goals = goals
        self._advice: Advised | None = None
        self._judge_at = 0.0
        self._stacks: tuple[Stack, ...] = ()
        """The sums of stacks when `_newest` was set."""
        self._newest: tuple[Stack, ...] | None = None
        """What was last added to the sums; None before anything was."""

    def look(self) -> Snapshot:
        """Return the current state of the run.

        Raises:
            ProfilerError: the run cannot be read.
        """
        begin = time.perf_counter()
        profile = load(self.folder)
        if begin >= self._judge_at:
            self._advice = advised(judge(Metrics(profile, self._goals), self._rules.rules))
            seconds = time.perf_counter() - begin
            self._judge_at = begin + max(JUDGED_EVERY, seconds / SHARE)
        self._note(profile)
        state = snapshot(profile, str(self.folder), self._advice, self._newest)
        seconds = time.perf_counter() - begin
        self.pause = max(EVERY - seconds, seconds / SHARE - seconds)
        return state

    def _note(self, profile: Profile) -> None:
        """Separate the newest stacks from earlier ones, once there are enough of them."""
        rank = Metrics(profile).get(primary_rank)
        stacks = rank.stacks if rank else ()
        new_stacks = newest(stacks, self._stacks)
        if sum(row.samples for row in new_stacks) >= LEAST_SAMPLES:
            self._newest, self._stacks = new_stacks, stacks
