"""Tune a program change by change: profile, try the best candidate, keep it if it helps, and repeat.

It ends when no candidate is left. Recordings are the only state: what to do next follows from them. An interrupted
tuning therefore continues when the same is requested again, and completed processes are not run again.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.judging.judge import Finding, judge
from advisor.metrics.base import Metrics
from advisor.rules import all_rules
from advisor.rules.base import Intervention, Safety, Severity
from advisor.runs.load import load
from advisor.verify import kept
from advisor.verify.arm import TrialFailed
from advisor.verify.kept import Verified
from advisor.verify.pace import Pace, pace_of
from advisor.verify.probe import probe
from advisor.verify.process import ENDED, forget, run_once
from advisor.verify.trials import TrialChoices, Trials, Watcher, why_not
from profiler.errors import ProfilerError
from profiler.trial import Program

NOTE = "tuning.json"
SCHEMA = "profile-train/tuning@1"

# Time limit in seconds of a profile, when the program's pace is not known yet.
PROFILE_PATIENCE = 1800.0

MOST_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class KeptChange:
    """A change that was worth keeping, with the result of its trial."""

    finding: Finding
    verified: Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The course and the result of a tuning."""

    before: float
    """Seconds per step in the first profile."""
    after: float
    """Seconds per step in the profile with everything that was kept."""
    kept: tuple[KeptChange, ...]
    given_up: tuple[Verified, ...]
    """Trials whose change was not kept."""
    by_hand: tuple[Finding, ...]
    """Advice that cannot be tried from outside or was not allowed."""
    profile: Path
    """The recording with everything that was kept."""


def tune(program: Program, folder: Path, how: TrialChoices, watcher: Watcher) -> Tuned:
    """Tune a program, and return its course and result.

    Raises:
        ProfilerError: the program cannot be profiled, `folder` belongs to another program, or advice still comes after
            MOST_ROUNDS rounds.
    """
    claim(folder, program)
    kept_changes: list[KeptChange] = []
    given_up: list[Verified] = []
    before = None
    for number in range(1, MOST_ROUNDS + 1):
        watcher.profiling(number, [kept_change.verified.rule for kept_change in kept_changes])
        changes = tuple(kept_change.finding.change for kept_change in kept_changes)
        profile = folder / f"profile-{number}"
        metrics = _profile(program, changes, profile, how)
        trials = Trials(
            program=program,
            how=how,
            pace=_pace(metrics, profile),
            folder=folder / f"trials-{number}",
            changes=changes,
        )
        before = trials.pace.step_time if before is None else before
        while True:
            # Judge again after each change that was not worth it, because rules that it superseded may then fire.
            judgment = judge(metrics, how.rules, past=how.past, tried=kept.tried(given_up))
            candidates, by_hand = _sorted_out(judgment.findings, how.allowed, kept_changes, given_up)
            if not candidates:
                results = {
                    kept_change.verified.rule: replace(kept_change.verified, applied=True)
                    for kept_change in kept_changes
                }
                kept.write(profile, {**results, **{trial.rule: trial for trial in given_up}})
                return Tuned(
                    before=before,
                    after=trials.pace.step_time,
                    kept=tuple(kept_changes),
                    given_up=tuple(given_up),
                    by_hand=tuple(by_hand),
                    profile=profile,
                )
            finding = candidates[0]
            watcher.trying(trials, finding)
            result = trials.attempt(finding, watcher.running)
            watcher.tried(finding, result)
            trials.remember(finding, result, watcher)
            if result.verdict.is_kept:
                kept_changes.append(KeptChange(finding, result))
                break
            given_up.append(result)
    raise ProfilerError(f"{MOST_ROUNDS} changes were kept and there is still new advice.", f"See {folder}.")


def _profile(program: Program, changes: Sequence[Intervention], out: Path, how: TrialChoices) -> Metrics:
    new = not (out / ENDED).exists()
    try:
        run_once(program, changes, out, how.profile_steps, patience=PROFILE_PATIENCE, windows=True)
        if new:
            with contextlib.suppress(Exception):  # without it, rules report what was not tried
                probe(out, how.rules or all_rules(), lambda text: None)
        return Metrics(load(out), how.goals)
    except TrialFailed as failed:
        raise ProfilerError(f"The program could not be profiled. {failed}", f"See {out}.log.") from None


def _pace(metrics: Metrics, profile: Path) -> Pace:
    """Return the pace of a profile; one without steps does not count when the same is requested again."""
    try:
        return pace_of(metrics)
    except ProfilerError:
        forget(profile)
        raise


def _sorted_out(
    findings: Sequence[Finding], allowed: Sequence[Safety], done: Sequence[KeptChange], given_up: Sequence[Verified]
) -> tuple[list[Finding], list[Finding]]:
    """Return the advice to try, in the order of the plan, and the advice that cannot be tried."""
    rule_ids = {outcome.finding.rule.id for outcome in done} | {outcome.rule for outcome in given_up}
    candidates, by_hand = list[Finding](), list[Finding]()
    for finding in findings:
        if finding.severity is Severity.INFO or finding.rule.id in rule_ids:
            continue
        (candidates if why_not(finding, allowed) is None else by_hand).append(finding)
    return candidates, by_hand


def note(program: Program) -> dict[str, object]:
    """Return what identifies a tuning when it is resumed."""
    return {"schema": SCHEMA, "command": list(program.words), "cwd": program.cwd}


def claim(folder: Path, program: Program) -> None:
    """Check that the folder holds this program's tuning, or create a new one.

    Raises:
        ProfilerError: the folder holds something else.
    """
    path = folder / NOTE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        same = isinstance(content, dict) and {**content, **note(program)} == content
    except FileNotFoundError:
        if folder.exists() and any(folder.iterdir()):
            raise ProfilerError(
                f"{folder} exists and does not contain a tuning.", "Choose another folder: --out."
            ) from None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(json.dumps(note(program)) + "\n", encoding="utf-8")
        return
    except (OSError, ValueError):
        same = False
    if not same:
        raise ProfilerError(f"{folder} contains the tuning of another program.", "Choose another folder: --out.")
