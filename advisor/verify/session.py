"""Trying the advice on one run: what can be tried, what that takes, and carrying it out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from advisor.judge import Finding, Judgement, judge
from advisor.load import load
from advisor.metrics.base import Metrics, Missing
from advisor.metrics.step import step_time_cv, step_time_mean
from advisor.models.effects import Triple
from advisor.profile import Profile
from advisor.rules.base import Safety, Severity
from advisor.units import seconds
from advisor.verify import kept
from advisor.verify.arm import TrialFailed
from advisor.verify.judgement import Verdict
from advisor.verify.kept import Verified
from advisor.verify.process import Program
from advisor.verify.trials import Pace, compare, steps_needed
from profiler.agent.redact import HIDDEN
from profiler.errors import ProfilerError
from profiler.printable import printable

FOLDER = "trials"

# Seconds from starting a process to its first step, where imports and the first batch are short (assumption).
START_UP = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What of a run's advice can be tried, in the order of the plan."""

    folder: Path
    program: Program
    pace: Pace
    candidates: tuple[Finding, ...]
    left_out: tuple[str, ...] = ()
    """Why other advice is not tried, a sentence each."""
    verified: dict[str, Verified] = field(default_factory=dict)


def prepare(
    folder: Path, rules: Sequence[str], allow: str, *, in_place: bool = False, covered: Sequence[str] = ()
) -> Session:
    """Raises ProfilerError if the run cannot be run again, or a rule or a kind of change is not known."""
    allowed = {Safety.EXACT, *kinds(allow)}
    profile = load(folder)
    metrics = Metrics(profile)
    judgement = judge(metrics)
    _check_names(rules, judgement)
    candidates, left_out = list[Finding](), list[str]()
    for finding in judgement.findings:
        if finding.rule.id in rules or (not rules and finding.severity is not Severity.INFO):
            reason = why_not(finding, allowed)
            if reason is None:
                candidates.append(finding)
            else:
                left_out.append(f"{finding.rule.id}: {reason}")
    left_out += [f"{rule}: it was not advised." for rule in rules if rule not in _ids(judgement)]
    return Session(
        folder=folder,
        program=_program(profile, in_place, covered),
        pace=pace_of(metrics),
        candidates=tuple(candidates),
        left_out=tuple(left_out),
        verified=kept.read(folder),
    )


def announcement(session: Session, processes: int, steps: int | None) -> str:
    """What will be run, before the first time."""
    program, lines = session.program, list[str]()
    total = 0.0
    for finding in session.candidates:
        number = steps or steps_needed(session.pace, predicted(finding), processes)
        time = 2 * processes * (START_UP + number * session.pace.step_time)
        total += time
        lines.append(f"  {finding.rule.id}: {2 * processes} runs of {number} steps, about {seconds(time)}")
    command = printable(shlex.join(program.words))
    return "\n".join(
        [
            f"To be tried: {command}",
            *lines,
            promise_of_harmlessness(program),
            f"About {seconds(total)} in all; Ctrl-C ends it, and the same command goes on where it was.",
        ]
    )


def promise_of_harmlessness(program: Program) -> str:
    """What becomes of what it writes."""
    where = (
        "in your folder: what the program writes stays written."
        if program.in_place
        else "on a view of your files that is thrown away: nothing of yours is changed."
    )
    return f"It runs {where} Trackers are told to stay offline."


def carry_out(session: Session, processes: int, steps: int | None, console: Console | None = None) -> None:
    """Try each candidate; what came of it is kept after each."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console or Console(stderr=True)) as bar:
        for finding in session.candidates:
            rule = finding.rule.id
            task = bar.add_task(rule, total=2 * processes)

            def told(what: str, done: int, of: int, task: object = task, rule: str = rule) -> None:
                bar.update(task, completed=done, total=of, description=f"{rule}: {what}")  # type: ignore[arg-type]

            session.verified[rule] = _tried(session, finding, processes, steps, told)
            kept.write(session.folder, session.verified)
            bar.update(task, description=f"{rule}: {session.verified[rule].verdict.value}")


def pace_of(metrics: Metrics) -> Pace:
    """Raises ProfilerError if no steps were measured."""
    try:
        return Pace(metrics[step_time_mean], metrics[step_time_cv])
    except Missing as missing:
        raise ProfilerError(f"{missing.what}, so there is nothing to compare.", missing.remedy) from None


def predicted(finding: Finding) -> Triple | None:
    """The share of the step time that this advice alone is to remove."""
    gain = finding.alone
    return None if gain is None else (gain.low, gain.expected, gain.high)


def _tried(session: Session, finding: Finding, processes: int, steps: int | None, told: object) -> Verified:
    promise = predicted(finding)
    number = steps or steps_needed(session.pace, promise, processes)
    assert finding.advice.intervention is not None
    where = session.folder / FOLDER / f"{finding.rule.id}-{number}"
    try:
        found = compare(
            session.program,
            session.pace,
            (),
            finding.advice.intervention,
            promise,
            where,
            steps=number,
            processes=processes,
            progress=told,  # type: ignore[arg-type]
        )
    except TrialFailed as failed:
        return Verified(rule=finding.rule.id, verdict=Verdict.FAILED, predicted=promise, why=str(failed))
    return kept.of(finding.rule.id, promise, found)


def kinds(allow: str) -> list[Safety]:
    """ "numerics, memory" as the kinds of change that these are. Raises ProfilerError for one that is none."""
    try:
        return [Safety(name.strip()) for name in allow.split(",") if name.strip()]
    except ValueError as error:
        known = ", ".join(each.value for each in Safety)
        raise ProfilerError(f"--allow: {error}.", f"Known are: {known}.") from None


def _check_names(rules: Sequence[str], judgement: Judgement) -> None:
    known = {verdict.rule.id for verdict in judgement.verdicts}
    for rule in rules:
        if rule not in known:
            raise ProfilerError(f"There is no rule {rule!r}.", "See: profile-train rules")


def _ids(judgement: Judgement) -> set[str]:
    return {finding.rule.id for finding in judgement.findings}


def why_not(finding: Finding, allowed: set[Safety]) -> str | None:
    """Why this advice is not tried, in a sentence; None if it can be."""
    change = finding.advice.intervention
    if change is None:
        return "it takes a hand to make this change."
    if change.safety not in allowed:
        return f"it changes more than speed; --allow {change.safety.value} tries it."
    return None


def _program(profile: Profile, in_place: bool, covered: Sequence[str]) -> Program:
    run = profile.runs[0]
    if not run.command:
        raise ProfilerError("This run does not tell what was run.", "Record it with: profile-train SCRIPT")
    if any(HIDDEN in word for word in run.command):
        raise ProfilerError(
            "A secret was left out of the recorded command, so it cannot be run again.",
            "Give secrets by the environment, and record anew.",
        )
    if not Path(run.cwd).is_dir():
        raise ProfilerError(f"The folder it ran in is gone: {run.cwd}.", "Verify where it was recorded.")
    return Program(words=run.command, cwd=run.cwd, in_place=in_place, covered=tuple(covered))
