"""Run the trials of one piece of advice: which processes, in which order, and what they showed.

Arms alternate (A B B A A B ...), so that a machine that grows slower or faster favors neither. A process that has been
recorded already is not run again: an interrupted comparison continues where it was.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from advisor.judging import calibration_file
from advisor.judging.calibration import Calibration
from advisor.judging.judge import Finding
from advisor.judging.verdict import Verdict
from advisor.metrics.base import Goals
from advisor.rules.base import Intervention, Rule, Safety
from advisor.verify.arm import Arm, TrialFailed, read
from advisor.verify.judgment import judged
from advisor.verify.kept import Verified
from advisor.verify.pace import Pace, steps_needed
from advisor.verify.process import forget, run_once
from profiler.errors import ProfilerError
from profiler.trial import Program
from profiler.version import __version__

# Time limit of a process: a multiple of the time that its steps should take, plus seconds to start and compile.
PATIENCE, START = 5.0, 300.0

# Steps of the profile that advice is based on: rules need thirty steady steps after warm-up, and epoch starts
# should be among the steps.
PROFILE_STEPS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialChoices:
    """The user's choices for trials."""

    allowed: Sequence[Safety]
    processes: int
    """Number of processes in each arm."""
    steps: int | None = None
    """Steps of each process; None: as many as the prediction needs."""
    profile_steps: int = PROFILE_STEPS
    in_place: bool = False
    covered: tuple[str, ...] = ()
    network: bool = False
    goals: Goals | None = None
    rules: Sequence[Rule] | None = None
    """The rules that judge runs; None: all built-in ones."""
    past: Calibration | None = None
    """The trials that predictions are calibrated by."""
    calibration: Path | None = None
    """The file that verdicts are added to."""

    def program(self, words: Sequence[str], cwd: str) -> Program:
        """Return the program of these words, to be run as chosen."""
        return Program(words=tuple(words), cwd=cwd, in_place=self.in_place, covered=self.covered, network=self.network)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """The trials of advice on a program."""

    program: Program
    how: TrialChoices
    pace: Pace
    folder: Path
    """Folder of the recordings, one subfolder per rule."""
    changes: tuple[Intervention, ...] = ()
    """Changes that both arms have."""

    def steps_of(self, finding: Finding) -> int:
        """Return the steps of each process that tries the advice."""
        return self.how.steps or steps_needed(self.pace, finding, self.how.processes)

    def duration(self, finding: Finding) -> float:
        """Return the approximate seconds that trying it takes."""
        return self.pace.duration(self.how.processes, self.steps_of(finding), finding.alone)

    def forget(self, finding: Finding) -> None:
        """Delete the recordings of this advice."""
        shutil.rmtree(self._place(finding), ignore_errors=True)

    def attempt(self, finding: Finding, running: Callable[[str, int, int], None]) -> Verified:
        """Try the advice, and return its result.

        Raises:
            ProfilerError: there is no sandbox.
        """
        try:
            return self._compare(finding, running)
        except TrialFailed as failed:
            return Verified(rule=finding.rule.id, verdict=Verdict.FAILED, predicted=finding.alone, why=str(failed))

    def remember(self, finding: Finding, found: Verified, watcher: Watcher) -> None:
        """Add the prediction, its inputs and its outcome to the calibration file, if there is one.

        A write error is reported, and trials continue.
        """
        file = self.how.calibration
        if file is None:
            return
        confidence = finding.advice.confidence or finding.rule.confidence
        # The program, with the changes that both arms have.
        program_key = (self.program.cwd, *self.program.words, *(change.name for change in self.changes))
        entry = {
            "case": calibration_file.case(program_key, finding.rule.id),
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "version": __version__,
            "rule": finding.rule.id,
            "verdict": found.verdict.value,
            "predicted": finding.modeled,
            "removed": found.removed,
            "confidence": confidence.value,
            "evidence": {fact.metric.name: fact.value for fact in finding.evidence.facts if math.isfinite(fact.value)},
            "limits": finding.rule.in_force,
            "memory_predicted": finding.advice.memory,
            "memory": found.memory,
            "losses_agree": found.losses_agree,
            "steps": found.steps,
            "processes": found.processes,
        }
        try:
            calibration_file.append(file, entry)
        except ProfilerError as error:
            watcher.show(str(error))

    def _place(self, finding: Finding) -> Path:
        return self.folder / f"{finding.rule.id}-{self.steps_of(finding)}"

    def _compare(self, finding: Finding, running: Callable[[str, int, int], None]) -> Verified:
        change = finding.change
        arms: tuple[list[Arm], list[Arm]] = ([], [])
        steps, processes = self.steps_of(finding), self.how.processes
        for done, treated in enumerate(order(processes)):
            running("with the change" if treated else "without", done, 2 * processes)
            number = len(arms[treated]) + 1
            out = self._place(finding) / f"{'with' if treated else 'without'}-{number}"
            # The last unchanged process shows what rounding alone does to the losses.
            nudged = not treated and number == processes and change.safety is Safety.NUMERICS
            arms[treated].append(self._arm((*self.changes, change) if treated else self.changes, out, steps, nudged))
        running("done", 2 * processes, 2 * processes)
        memory_change = finding.advice.memory or 0
        try:
            return judged(
                *arms,
                finding.alone,
                # Loader workers draw other random numbers for augmentation than the process itself: this is harmless.
                same_losses=change.safety is not Safety.TRAJECTORY and change.name != "loader",
                # A fault that freed memory fixes is a lack of memory; other advice frees memory as a side effect.
                memory=memory_change if finding.advice.fault and memory_change < 0 else None,
                rule=finding.rule.id,
                leaves=change.leaves,
            )
        except ValueError as error:
            raise TrialFailed(f"The processes cannot be compared: {error}.") from None

    def _arm(self, changes: Sequence[Intervention], out: Path, steps: int, nudged: bool, *, again: bool = False) -> Arm:
        """Run one process and return its measurements, with a second attempt if it failed by chance.

        A recording that failed by chance is not reused later either.
        """
        patience = START + PATIENCE * steps * self.pace.step_time
        run_once(self.program, changes, out, steps, patience=patience, nudged=nudged)
        try:
            return read(out, Path(f"{out}.log"))
        except TrialFailed as failed:
            if failed.by_chance:
                forget(out)
            if again or not failed.by_chance:
                raise
        return self._arm(changes, out, steps, nudged, again=True)


class Watcher(Protocol):
    """An observer of trials, which shows their progress."""

    def trying(self, trials: Trials, finding: Finding) -> None:
        """Report that advice is about to be tried."""

    def running(self, what: str, done: int, of: int) -> None:
        """Report how many of its processes are done, and what runs next."""

    def tried(self, finding: Finding, found: Verified) -> None:
        """Report the outcome of a trial."""

    def show(self, text: str) -> None:
        """Show a message to the user."""

    def profiling(self, number: int, kept: Sequence[str]) -> None:
        """Report that a tuning profiles the program for the `number`th time, with the changes of these rules."""


def order(processes: int) -> Iterator[bool]:
    """Yield the order of arms: A B B A A B B A ... False is the unchanged program, True the changed one."""
    for pair in range(processes):
        yield from (False, True) if pair % 2 == 0 else (True, False)


def why_not(finding: Finding, allowed: Sequence[Safety]) -> str | None:
    """Return why this advice is not tried, in a sentence; None if it can be."""
    change = finding.advice.intervention
    if change is None:
        return "not tried: this change must be made by hand."
    if change.safety not in allowed:
        return f"it changes more than speed; --allow {change.safety.value} tries it."
    return None
