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
    """How a process ended, and after how many steps."""

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
    """How a program was made to fit."""

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
    steps, place = how.steps or STEPS, folder / "fitting"
    watcher.show(f"The unchanged program, for {steps} steps")
    plain = place / "as-it-is"
    before = _run(program, (), plain, steps)
    if before.fits:
        watcher.show(f"  {steps} steps ran; memory is sufficient")
        return None
    if not before.of_memory:
        raise ProfilerError(f"The program did not run out of memory: {before.why}", f"See {plain}.log.")
    watcher.show(f"  {before.why}")
    metrics = Metrics(load(plain), how.goals)
    known, left_out = _sorted_out(ladders(metrics, judge(metrics, how.rules).findings), (*how.allowed, Safety.MEMORY))
    tried: dict[Path, tuple[Remedies, Ending]] = {}

    def out(chosen: Remedies) -> Path:
        return place / "+".join(remedy_name(remedy).replace(" ", "-") for remedy in chosen)

    def attempt(chosen: Remedies) -> Ending:
        if out(chosen) not in tried:
            watcher.show(" + ".join(map(remedy_name, chosen)))
            ending = _run(program, [remedy.change for remedy in chosen], out(chosen), steps)
            tried[out(chosen)] = chosen, ending
            watcher.show(f"  it takes its {steps} steps" if ending.fits else f"  {ending.why}")
        return tried[out(chosen)][1]

    working = [_that_can_be_made(ladder, attempt) for ladder in known]
    found = smallest(working, lambda chosen: attempt(chosen).fits)
    made = tuple(
        KeptChange(
            remedy,
            Verified(
                rule=remedy.rule.id,
                verdict=Verdict.CONFIRMED,
                predicted=None,
                steps=steps,
                processes=1,
                why=f"With {'this change' if len(found) == 1 else 'these changes'}, the program completed {steps} "
                f"steps; without, {inline(before.why)}",
                applied=True,
            ),
        )
        for remedy in found
    )
    profile = out(found) if found else plain
    kept.write(profile, {each.verified.rule: each.verified for each in made})
    return Fitted(
        before=before,
        kept=made,
        after=attempt(found) if found else None,
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
        for chosen in sorted(combinations(known, number), key=_least):
            if best and _weight(best) <= _least(chosen):
                break
            if fits(tuple(ladder[-1] for ladder in chosen)):
                eased = _eased(chosen, fits)
                best = min((best, eased), key=_weight) if best else eased
        if best:
            return best
    return ()


def _eased(chosen: Sequence[Ladder], fits: Callable[[Remedies], bool]) -> Remedies:
    """Return the changes, each replaced by the cheapest one that still fits.

    The most expensive change is replaced first.
    """
    now = [ladder[-1] for ladder in chosen]
    for place in sorted(range(len(now)), key=lambda each: weight(now[each]), reverse=True):
        for cheaper in chosen[place][:-1]:
            if fits((*now[:place], cheaper, *now[place + 1 :])):
                now[place] = cheaper
                break
    return tuple(now)


def _least(chosen: Sequence[Ladder]) -> tuple[float, int]:
    """Return the weight of the cheapest change of each ladder, combined."""
    return _weight([ladder[0] for ladder in chosen])


def _weight(chosen: Sequence[Finding]) -> tuple[float, int]:
    weights = [weight(remedy) for remedy in chosen]
    return (sum(time for time, _ in weights), max(risk for _, risk in weights))


def _sorted_out(known: Sequence[Ladder], allowed: Sequence[Safety]) -> tuple[list[Ladder], tuple[str, ...]]:
    """Return the allowed changes of each ladder, and why the others are not allowed, one sentence per rule."""
    left_out: dict[str, str] = {}
    found = []
    for ladder in known:
        reasons = [(remedy, why_not(remedy, allowed)) for remedy in ladder]
        left_out |= {remedy.rule.id: reason for remedy, reason in reasons if reason}
        found.append(tuple(remedy for remedy, reason in reasons if not reason))
    return [ladder for ladder in found if ladder], tuple(f"{rule}: {reason}" for rule, reason in left_out.items())


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
    taken = sum(step.count for step in rank.steps) if rank else 0
    problems = [each.message for each in m.profile.problems if each.source == "trial"]
    if problems:
        return Ending(fits=False, steps=taken, why=f"The change could not be made. {problems[0]}")
    if m[ran_out_of_memory]:
        when = f"after {count(taken, 'step')}" if taken else "in its first step"
        return Ending(fits=False, steps=taken, of_memory=True, why=f"It ran out of memory {when}.")
    if run.signal == SIGKILL:
        why = f"It was killed after {count(taken, 'step')}, as the system does if memory runs out."
        return Ending(fits=False, steps=taken, of_memory=True, why=why)
    if run.outcome != "completed":
        ends = [each.message for each in m.profile.problems if each.source == "end"]
        return Ending(fits=False, steps=taken, why=" ".join(ends) or "The program failed.")
    return Ending(fits=True, steps=taken, step_time=m.get(step_time_mean))
