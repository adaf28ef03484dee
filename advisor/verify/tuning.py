"""Change after change: profile, try the best candidate, keep it if it is worth it, profile again, until none is left.

There is no other state than the recordings: what to do next follows from them. So a tuning that was cut off goes on if
the same is asked for again; processes that have had their time are not run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.judge import Finding, judge
from advisor.load import load
from advisor.metrics.base import Goals, Metrics
from advisor.rules.base import Safety, Severity
from advisor.verify import kept
from advisor.verify.arm import TrialFailed
from advisor.verify.judgement import Verdict
from advisor.verify.kept import Verified
from advisor.verify.process import Program, run_once
from advisor.verify.session import pace_of, predicted, why_not
from advisor.verify.trials import Pace, compare, steps_needed
from profiler.errors import ProfilerError

NOTE = "tuning.json"
SCHEMA = "profile-train/tuning@1"

# Of the profile that advice is taken from: thirty steady ones after warm-up are what rules ask for, and epochs show.
PROFILE_STEPS = 150

# Seconds that a profile of a program whose pace is not known yet may take.
PROFILE_PATIENCE = 1800.0

MOST_ROUNDS = 12

Said = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Kept:
    """A change that was worth it, with what was tried of it."""

    finding: Finding
    verified: Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The story of a tuning."""

    before: float
    """Seconds a step, as profiled at first."""
    after: float
    """As profiled with everything that was kept."""
    kept: tuple[Kept, ...]
    given_up: tuple[Verified, ...]
    """Tried and not kept."""
    by_hand: tuple[Finding, ...]
    """What is left to advise and cannot be tried from outside, or was not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What the user chose."""

    allowed: frozenset[Safety]
    processes: int
    steps: int | None = None
    """Of each process of a trial; None: as many as the prediction needs."""
    profile_steps: int = PROFILE_STEPS
    goals: Goals | None = None


def tune(program: Program, folder: Path, how: How, say: Said) -> Tuned:
    """`say` is told what goes on. Raises ProfilerError if the program cannot be profiled, or `folder` is another's."""
    _claim(folder, program)
    done: list[Kept] = []
    given_up: list[Verified] = []
    before = None
    for number in range(MOST_ROUNDS):
        metrics, findings = _profile(program, done, folder / f"profile-{number}", how, say)
        pace = pace_of(metrics)
        before = pace.step_time if before is None else before
        candidates, by_hand = _sorted_out(findings, how.allowed, done, given_up)
        for finding in candidates:
            say(f"{finding.rule.id}: {finding.rule.title}")
            found = _tried(program, pace, done, finding, folder / f"trials-{number}", how, say)
            say(f"{finding.rule.id}: {found.verdict.value}")
            if found.verdict.is_kept:
                done.append(Kept(finding, found))
                break
            given_up.append(found)
        else:
            return Tuned(
                before=before,
                after=pace.step_time,
                kept=tuple(done),
                given_up=tuple(given_up),
                by_hand=tuple(by_hand),
            )
    raise ProfilerError(f"{MOST_ROUNDS} changes were kept and advice still comes.", f"See {folder}.")


def _profile(
    program: Program, done: Sequence[Kept], out: Path, how: How, say: Said
) -> tuple[Metrics, tuple[Finding, ...]]:
    say("profiling")
    changes = [each.finding.advice.intervention for each in done]
    try:
        run_once(
            program,
            [change for change in changes if change is not None],
            out,
            how.profile_steps,
            patience=PROFILE_PATIENCE,
            windows=True,
        )
        profile = load(out)
    except (TrialFailed, ProfilerError) as failed:
        raise ProfilerError(
            f"The program could not be profiled: {failed}", f"What it printed is in {out}.log."
        ) from None
    metrics = Metrics(profile, how.goals)
    return metrics, judge(metrics).findings


def _sorted_out(
    findings: Sequence[Finding], allowed: frozenset[Safety], done: Sequence[Kept], given_up: Sequence[Verified]
) -> tuple[list[Finding], list[Finding]]:
    """What to try, in the order of the plan, and what only a hand can change."""
    over = {each.finding.rule.id for each in done} | {each.rule for each in given_up}
    worth = [each for each in findings if each.severity is not Severity.INFO and each.rule.id not in over]
    candidates = [each for each in worth if why_not(each, set(allowed)) is None]
    return candidates, [each for each in worth if each not in candidates]


def _tried(
    program: Program, pace: Pace, done: Sequence[Kept], finding: Finding, folder: Path, how: How, say: Said
) -> Verified:
    promise, change = predicted(finding), finding.advice.intervention
    assert change is not None
    steps = how.steps or steps_needed(pace, promise, how.processes)
    try:
        found = compare(
            program,
            pace,
            [each.finding.advice.intervention for each in done if each.finding.advice.intervention is not None],
            change,
            promise,
            folder / f"{finding.rule.id}-{steps}",
            steps=steps,
            processes=how.processes,
            progress=lambda what, number, of: say(f"{finding.rule.id}: {what} ({number} of {of} runs done)"),
        )
    except TrialFailed as failed:
        return Verified(rule=finding.rule.id, verdict=Verdict.FAILED, predicted=promise, why=str(failed))
    return kept.of(finding.rule.id, promise, found)


def _claim(folder: Path, program: Program) -> None:
    """The folder is this program's tuning, or a new one."""
    note = {"schema": SCHEMA, "command": list(program.words), "cwd": program.cwd}
    path = folder / NOTE
    if path.exists():
        try:
            same = json.loads(path.read_text()) == note
        except ValueError:
            same = False
        if not same:
            raise ProfilerError(f"{folder} holds the tuning of another program.", "Choose another folder with --out.")
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(json.dumps(note) + "\n")
