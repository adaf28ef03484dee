"""Trying the advice on one run: what can be tried, what that takes, and carrying it out."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.calibration import Calibration
from advisor.judge import Finding, Judgement, judge
from advisor.load import load
from advisor.metrics.base import Goals, Metrics
from advisor.profile import Profile
from advisor.rules.base import Rule, Safety, Severity
from advisor.units import seconds
from advisor.verify import kept, learnt, tuned
from advisor.verify.pace import pace_of
from advisor.verify.process import Program
from advisor.verify.trials import Trials, Watcher, why_not
from advisor.verify.verdict import Verdict
from profiler.agent.redact import HIDDEN
from profiler.errors import ProfilerError
from profiler.printable import printable

FOLDER = "trials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What of a run's advice can be tried, in the order of the plan."""

    folder: Path
    trials: Trials
    candidates: tuple[Finding, ...]
    left_out: tuple[str, ...] = ()
    """Why other advice is not tried, a sentence each."""
    on_demand: tuple[str, ...] = ()
    """Rules whose advice is information, but could be tried."""
    calibration: Path | None = None
    """File that verdicts are added to."""

    def carry_out(self, watcher: Watcher) -> None:
        """Try each candidate; what came of it is kept after each, beside what is known of others. What was tried to its
        end is tried anew, with new runs: the program may be another by now."""
        known = kept.read(self.folder)
        for finding in self.candidates:
            before = known.pop(finding.rule.id, None)
            if before is not None and before.verdict is not Verdict.INCONCLUSIVE:
                self.trials.forget(finding)
                kept.write(self.folder, known)
            watcher.trying(self.trials, finding)
            found = self.trials.attempt(finding, watcher.running)
            watcher.tried(finding, found)
            known[finding.rule.id] = found
            kept.write(self.folder, known)
            learnt.keep(self.calibration, self.trials, finding, found, watcher)


def prepare(
    folder: Path,
    rules: Sequence[str],
    allowed: Sequence[Safety],
    *,
    processes: int,
    steps: int | None = None,
    in_place: bool = False,
    covered: Sequence[str] = (),
    goals: Goals | None = None,
    known: Sequence[Rule] | None = None,
    past: Calibration | None = None,
    calibration: Path | None = None,
) -> Session:
    """`known` rules are asked, or all of ours; predictions are held to the `past`, and verdicts added to the file of
    `calibration`. Raises ProfilerError if the run cannot be run again, or a rule is not
    known."""
    profile = load(folder)
    metrics = Metrics(profile, goals)
    judgement = judge(metrics, known, past=past)
    _check_names(rules, judgement)
    before = kept.read(folder).values()  # one that is none of ours is told before anything is run
    candidates, left_out, on_demand = list[Finding](), list[str](), list[str]()
    findings = _with_what_is_heard(judgement.findings, judge(metrics, known, past=past, tried=kept.tried(before)))
    for finding in findings:
        reason = why_not(finding, allowed)
        if finding.rule.id in rules or (not rules and finding.severity is not Severity.INFO):
            if reason is None:
                candidates.append(finding)
            else:
                left_out.append(f"{finding.rule.id}: {reason}")
        elif reason is None:
            on_demand.append(finding.rule.id)
    advised = {finding.rule.id for finding in findings}
    left_out += [f"{rule}: it was not advised." for rule in rules if rule not in advised]
    return Session(
        folder=folder,
        trials=Trials(
            program=_program(profile, in_place, covered),
            pace=pace_of(metrics),
            folder=folder / FOLDER,
            processes=processes,
            steps=steps,
            changes=tuned.changes(folder),
        ),
        candidates=tuple(candidates),
        left_out=tuple(left_out),
        on_demand=tuple(on_demand),
        calibration=calibration,
    )


def announcement(session: Session) -> str:
    """What will be run, before the first time."""
    trials, number = session.trials, 2 * session.trials.processes
    lines = [
        f"  {finding.rule.id}: {number} runs of {trials.steps_of(finding)} steps, about "
        f"{seconds(trials.duration(finding))}"
        for finding in session.candidates
    ]
    total = sum(map(trials.duration, session.candidates))
    return "\n".join(
        [
            f"To be tried: {printable(shlex.join(trials.program.words))}",
            *lines,
            promise_of_harmlessness(trials.program),
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
    return f"It runs {where} Trackers are told to stay offline; what else it sends over the network is sent."


def _with_what_is_heard(findings: Sequence[Finding], tried: Judgement) -> list[Finding]:
    """Beside what the models say, what is said only since something that came before it was `tried` and refuted. The
    rest of that judgement is no prediction any more."""
    named = {finding.rule.id for finding in findings}
    return [*findings, *(finding for finding in tried.findings if finding.rule.id not in named)]


def _check_names(rules: Sequence[str], judgement: Judgement) -> None:
    known = {verdict.rule.id for verdict in judgement.verdicts}
    for rule in rules:
        if rule not in known:
            near = difflib.get_close_matches(rule, known, n=1)
            remedy = f"Did you mean {near[0]}?" if near else "See: profile-train rules"
            raise ProfilerError(f"There is no rule {rule!r}.", remedy)


def _program(profile: Profile, in_place: bool, covered: Sequence[str]) -> Program:
    run = profile.runs[0]
    if len(profile.runs) > 1:
        raise ProfilerError(
            f"It ran on {len(profile.runs)} nodes; what is tried runs on one.",
            "Record a run on one node, and verify that.",
        )
    if not run.command:
        raise ProfilerError("This run does not tell what was run.", "Record it with: profile-train SCRIPT")
    if any(HIDDEN in word for word in run.command):
        raise ProfilerError(
            "A secret was left out of the recorded command, so it cannot be run again.",
            "Give secrets by the environment, and record anew.",
        )
    if not Path(run.cwd).is_dir():
        raise ProfilerError(f"The folder it ran in is gone: {run.cwd}.", "Verify where it was recorded.")
    script = Path(run.cwd) / run.command[0]
    if script.suffix == ".py" and not script.exists():
        raise ProfilerError(f"The script is gone: {script}.", "Verify where it was recorded.")
    return Program(words=run.command, cwd=run.cwd, in_place=in_place, covered=tuple(covered))
