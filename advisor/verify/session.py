"""Try the advice on one run: what can be tried, how long it takes, and its execution."""

import difflib
import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.judging.judge import Finding, Judgment, judge
from advisor.judging.verdict import Verdict
from advisor.metrics.base import Metrics
from advisor.rules.base import Severity
from advisor.runs.load import load
from advisor.runs.profile import Profile
from advisor.units import seconds
from advisor.verify import kept, tuned
from advisor.verify.pace import pace_of
from advisor.verify.trials import TrialChoices, Trials, Watcher, why_not
from profiler.agent.redact import HIDDEN
from profiler.errors import ProfilerError
from profiler.printable import printable
from profiler.store import find, runs
from profiler.trial import Program

FOLDER = "trials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The advice of a run that can be tried, in the order of the plan."""

    folder: Path
    runs: tuple[str, ...]
    """The `Run.id` of each recording that the advice is about."""
    trials: Trials
    candidates: tuple[Finding, ...]
    left_out: tuple[str, ...] = ()
    """Why other advice is not tried, one sentence each."""
    on_demand: tuple[str, ...] = ()
    """Rules whose advice is information but could be tried."""

    def carry_out(self, watcher: Watcher) -> None:
        """Try each candidate, and save its outcome next to those of the others.

        A candidate that already has a conclusive result is tried again with new runs: the program may have changed.

        Raises:
            ProfilerError: another recording replaced this one meanwhile. Nothing is stored next to that one.
        """
        results = kept.read(self.folder)
        for finding in self.candidates:
            self._check()
            previous = results.pop(finding.rule.id, None)
            if previous is not None and previous.verdict is not Verdict.INCONCLUSIVE:
                self.trials.forget(finding)
                kept.write(self.folder, results)
            watcher.trying(self.trials, finding)
            result = self.trials.attempt(finding, watcher.running)
            self._check(finding)
            watcher.tried(finding, result)
            results[finding.rule.id] = result
            kept.write(self.folder, results)
            self.trials.remember(finding, result, watcher)

    def _check(self, tried: Finding | None = None) -> None:
        """Raise ProfilerError if the folder holds another recording now, and delete what was `tried` meanwhile."""
        try:
            if _ids(self.folder) == self.runs:
                return
        except ProfilerError:  # it is being replaced
            pass
        if tried is not None:
            self.trials.forget(tried)
        raise ProfilerError(
            f"{self.folder} now holds another recording, so no result was stored.",
            "Record the program into a separate folder, and verify that run.",
        )


def prepare(folder: Path, rules: Sequence[str], how: TrialChoices) -> Session:
    """Prepare the trials of a run's advice, or only of the advice of these rules.

    Raises:
        ProfilerError: the run cannot be run again, or a rule is unknown.
    """
    run_ids = _ids(folder)  # first, to notice a recording that replaces this one from here on
    profile = load(folder)
    metrics = Metrics(profile, how.goals)
    judgment = judge(metrics, how.rules, past=how.past)
    _check_names(rules, judgment)
    earlier_trials = kept.read(folder).values()  # reports a foreign file before anything runs
    candidates, left_out, on_demand = list[Finding](), list[str](), list[str]()
    after_trials = judge(metrics, how.rules, past=how.past, tried=kept.tried(earlier_trials))
    findings = {finding.rule.id: finding for finding in judgment.findings}
    # Add advice that appears only after other advice was refuted. Keep the other findings of `judgment`: in
    # `after_trials`, measured results replaced their predictions.
    for finding in after_trials.findings:
        findings.setdefault(finding.rule.id, finding)
    for finding in findings.values():
        reason = why_not(finding, how.allowed)
        if finding.rule.id in rules or (not rules and finding.severity is not Severity.INFO):
            if reason is None:
                candidates.append(finding)
            else:
                left_out.append(f"{finding.rule.id}: {reason}")
        elif reason is None:
            on_demand.append(finding.rule.id)
    left_out += [
        f"{rule}: the report of this run does not contain this advice." for rule in rules if rule not in findings
    ]
    return Session(
        folder=folder,
        runs=run_ids,
        trials=Trials(
            program=_program(profile, how),
            how=how,
            pace=pace_of(metrics),
            folder=folder / FOLDER / _digest(run_ids),  # an unfinished trial continues only for its own recording
            changes=tuned.changes(folder),
        ),
        candidates=tuple(candidates),
        left_out=tuple(left_out),
        on_demand=tuple(on_demand),
    )


def _digest(runs: tuple[str, ...]) -> str:
    """Return a name for a folder; an identifier of a foreign recording may contain any characters."""
    return hashlib.sha256("\n".join(runs).encode(errors="replace")).hexdigest()[:12]


def _ids(folder: Path) -> tuple[str, ...]:
    return tuple(run.id for path in find(folder) for run in runs(path))


def announcement(session: Session) -> str:
    """Return what will run, for confirmation."""
    trials, number = session.trials, 2 * session.trials.how.processes
    lines = [
        f"  {finding.rule.id}: {number} runs of {trials.steps_of(finding)} steps, about "
        f"{seconds(trials.duration(finding))}"
        for finding in session.candidates
    ]
    total = sum(map(trials.duration, session.candidates))
    return "\n".join(
        [
            f"Trials of {printable(shlex.join(trials.program.words))}",
            *lines,
            promise_of_harmlessness(trials.program),
            f"About {seconds(total)} in total. Ctrl-C stops it; run the same command again to continue.",
        ]
    )


def promise_of_harmlessness(program: Program) -> str:
    """Return what happens to the files that the program writes."""
    location = (
        "in your folder: files that the program writes stay."
        if program.in_place
        else "on a temporary copy-on-write view of your files: your files do not change."
    )
    network = (
        "other network access is allowed."
        if program.in_place or program.network
        else "the program has no network access (allow it with --network)."
    )
    return f"The program runs {location} Trackers are set to offline mode; {network}"


def _check_names(rules: Sequence[str], judgment: Judgment) -> None:
    rule_ids = {verdict.rule.id for verdict in judgment.verdicts}
    for rule in rules:
        if rule not in rule_ids:
            matches = difflib.get_close_matches(rule, rule_ids, n=1)
            remedy = f"Did you mean {matches[0]}?" if matches else "See: profile-train rules"
            raise ProfilerError(f"There is no rule {rule!r}.", remedy)


def _program(profile: Profile, how: TrialChoices) -> Program:
    run = profile.runs[0]
    if len(profile.runs) > 1:
        raise ProfilerError(
            f"The run used {len(profile.runs)} nodes; trials run on one node.",
            "Record a run on one node, and verify that.",
        )
    if not run.command:
        raise ProfilerError("The recording does not contain the command.", "Record it with: profile-train SCRIPT")
    if any(HIDDEN in word for word in run.command):
        raise ProfilerError(
            "A secret was left out of the recorded command, so it cannot be run again.",
            "Pass secrets in environment variables, and record again.",
        )
    if not Path(run.cwd).is_dir():
        raise ProfilerError(f"The folder in which the program ran is gone: {run.cwd}.", "Verify where it was recorded.")
    script = Path(run.cwd) / run.command[0]
    if script.suffix == ".py" and not script.exists():
        raise ProfilerError(f"The script is gone: {script}.", "Verify where it was recorded.")
    return how.program(run.command, run.cwd)
