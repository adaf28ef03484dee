"""Find the smallest set of changes that lets an out-of-memory program finish its steps.

If several of the smallest sets fit, the one with the lowest predicted cost in time wins, and among equals the least
risky. As in a tuning, recordings are the only state: an interrupted fitting continues where it stopped.

Results are not added to the calibration. A program that failed has no peak to compare a prediction with, and memory
that several changes free together cannot be attributed to each of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from signal import SIGKILL

from advisor.judging.judge import Finding, judge
from advisor.judging.verdict import Verdict
from advisor.metrics.base import Metrics
from advisor.metrics.memory import ran_out_of_memory
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import step_time_mean
from advisor.rules.base import Intervention, Safety
from advisor.runs.load import load
from advisor.units import count, inline
from advisor.verify import kept
from advisor.verify.arm import TrialFailed
from advisor.verify.kept import Verified
from advisor.verify.process import run_once
from advisor.verify.remedies import Ladder, ladders, remedy_name, weight
from advisor.verify.trials import TrialChoices, Watcher, why_not
from advisor.verify.tuning import PROFILE_PATIENCE, KeptChange, claim
from profiler.errors import ProfilerError
from profiler.trial import Program

# Steps to run: memory has reached its peak by then, unless lengths vary or something leaks (assumption).
STEPS = 60

Remedies = tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a process, and the number of its steps."""

    fits: bool
    steps: int
    """Number of steps that it took."""
    of_memory: bool = False
    """Whether it failed for lack of memory."""
    why: str = ""
    """Why it did not finish."""
    step_time: float | None = None
    """Mean step time in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The changes that made a program fit."""

    before: Ending
    """How the unchanged program ended."""
    kept: tuple[KeptChange, ...]
    """The changes that it needs; empty if no set was found."""
    after: Ending | None
    """How it ended with these changes."""
    tried: tuple[tuple[Remedies, Ending], ...]
    """The sets that were tried, in their order."""
    left_out: tuple[str, ...]
    """Other changes that may free memory but were not tried, one sentence each."""
    profile: Path
    """The recording with the changes that were kept."""


def fit(program: Program, folder: Path, how: TrialChoices, watcher: Watcher) -> Fitted | None:
    """Make the program fit, and return how; None if it completes its steps unchanged.

    Raises:
        ProfilerError: it fails for another reason than lack of memory, or `folder` belongs to another program.
    """
    claim(folder, program)
    steps, trials_folder = how.steps or STEPS, folder / "fitting"
    watcher.show(f"The unchanged program, for {steps} steps")
    plain_folder = trials_folder / "as-it-is"
    before = _run(program, (), plain_folder, steps)
    if before.fits:
        watcher.show(f"  {steps} steps ran; memory is sufficient")
        return None
    if not before.of_memory:
        raise ProfilerError(f"The program did not run out of memory: {before.why}", f"See {plain_folder}.log.")
    watcher.show(f"  {before.why}")
    metrics = Metrics(load(plain_folder), how.goals)
    allowed_ladders, left_out = _sorted_out(
        ladders(metrics, judge(metrics, how.rules).findings), (*how.allowed, Safety.MEMORY)
    )
    tried: dict[Path, tuple[Remedies, Ending]] = {}

    def out(chosen: Remedies) -> Path:
        return trials_folder / "+".join(remedy_name(remedy).replace(" ", "-") for remedy in chosen)

    def attempt(chosen: Remedies) -> Ending:
        if out(chosen) not in tried:
            watcher.show(" + ".join(map(remedy_name, chosen)))
            ending = _run(program, [remedy.change for remedy in chosen], out(chosen), steps)
            tried[out(chosen)] = chosen, ending
            watcher.show(f"  it takes its {steps} steps" if ending.fits else f"  {ending.why}")
        return tried[out(chosen)][1]

    working_ladders = [_that_can_be_made(ladder, attempt) for ladder in allowed_ladders]
    remedies = smallest(working_ladders, lambda chosen: attempt(chosen).fits)
    changes = tuple(
        KeptChange(
            remedy,
            Verified(
                rule=remedy.rule.id,
                verdict=Verdict.CONFIRMED,
                predicted=None,
                steps=steps,
                processes=1,
                why=f"With {'this change' if len(remedies) == 1 else 'these changes'}, the program completed {steps} "
                f"steps; without, {inline(before.why)}",
                applied=True,
            ),
        )
        for remedy in remedies
    )
    profile = out(remedies) if remedies else plain_folder
    kept.write(profile, {change.verified.rule: change.verified for change in changes})
    return Fitted(
        before=before,
        kept=changes,
        after=attempt(remedies) if remedies else None,
        tried=tuple(tried.values()),
        left_out=left_out,
        profile=profile,
    )


def smallest(known: Sequence[Ladder], fits: Callable[[Remedies], bool]) -> Remedies:
    """Return the best set that `fits`; empty if none does.

    A change that frees more is assumed to fit wherever one that frees less does.
    """
    for number in range(1, len(known) + 1):
        if number == 2 and not fits(tuple(ladder[-1] for ladder in known)):
            return ()
        best: Remedies = ()
        for subset in sorted(combinations(known, number), key=_least):
            if best and _weight(best) <= _least(subset):
                break
            if fits(tuple(ladder[-1] for ladder in subset)):
                candidate = _eased(subset, fits)
                best = min((best, candidate), key=_weight) if best else candidate
        if best:
            return best
    return ()


def _eased(chosen: Sequence[Ladder], fits: Callable[[Remedies], bool]) -> Remedies:
    """Return the changes, each replaced by the cheapest one that still fits.

    The most expensive change is replaced first.
    """
    remedies = [ladder[-1] for ladder in chosen]
    for position in sorted(range(len(remedies)), key=lambda index: weight(remedies[index]), reverse=True):
        for cheaper in chosen[position][:-1]:
            if fits((*remedies[:position], cheaper, *remedies[position + 1 :])):
                remedies[position] = cheaper
                break
    return tuple(remedies)


def _least(chosen: Sequence[Ladder]) -> tuple[float, int]:
    """Return the weight of the cheapest change of each ladder, combined."""
    return _weight([ladder[0] for ladder in chosen])


def _weight(chosen: Sequence[Finding]) -> tuple[float, int]:
    weights = [weight(remedy) for remedy in chosen]
    return (sum(time for time, _ in weights), max(risk for _, risk in weights))


def _sorted_out(known: Sequence[Ladder], allowed: Sequence[Safety]) -> tuple[list[Ladder], tuple[str, ...]]:
    """Return the allowed changes of each ladder, and why the others are not allowed, one sentence per rule."""
    left_out: dict[str, str] = {}
    allowed_ladders = []
    for ladder in known:
        reasons = [(remedy, why_not(remedy, allowed)) for remedy in ladder]
        left_out |= {remedy.rule.id: reason for remedy, reason in reasons if reason}
        allowed_ladders.append(tuple(remedy for remedy, reason in reasons if not reason))
    return [ladder for ladder in allowed_ladders if ladder], tuple(
        f"{rule}: {reason}" for rule, reason in left_out.items()
    )


def _that_can_be_made(ladder: Ladder, attempt: Callable[[Remedies], Ending]) -> Ladder:
    """Return the ladder, without its strongest change if that cannot be made.

    This applies if the strongest change belongs to another rule than the weaker ones and fails for a reason other than
    memory. Otherwise, the weaker ones would never be tried.
    """
    weaker = tuple(remedy for remedy in ladder if remedy.rule is not ladder[-1].rule)
    if not weaker:
        return ladder
    ending = attempt(ladder[-1:])
    return ladder if ending.fits or ending.of_memory else weaker


def _run(program: Program, changes: Sequence[Intervention], out: Path, steps: int) -> Ending:
    try:
        run_once(program, changes, out, steps, patience=PROFILE_PATIENCE)
        m = Metrics(load(out))
        rank = m.get(primary_rank)
    except TrialFailed as failed:
        return Ending(fits=False, steps=0, why=str(failed))
    except ProfilerError as error:
        return Ending(fits=False, steps=0, why=error.message)
    run = m.profile.runs[0]
    steps_taken = sum(step.count for step in rank.steps) if rank else 0
    problems = [problem.message for problem in m.profile.problems if problem.source == "trial"]
    if problems:
        return Ending(fits=False, steps=steps_taken, why=f"The change could not be made. {problems[0]}")
    if m[ran_out_of_memory]:
        when = f"after {count(steps_taken, 'step')}" if steps_taken else "in its first step"
        return Ending(fits=False, steps=steps_taken, of_memory=True, why=f"It ran out of memory {when}.")
    if run.signal == SIGKILL:
        reason = f"It was killed after {count(steps_taken, 'step')}, as the system does if memory runs out."
        return Ending(fits=False, steps=steps_taken, of_memory=True, why=reason)
    if run.outcome != "completed":
        messages = [problem.message for problem in m.profile.problems if problem.source == "end"]
        return Ending(fits=False, steps=steps_taken, why=" ".join(messages) or "The program failed.")
    return Ending(fits=True, steps=steps_taken, step_time=m.get(step_time_mean))
