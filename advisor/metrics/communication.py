"""What ranks pay for training together: reducing gradients, and waiting for one another.

Where steps or windows of the profiler tell of collectives, that is taken; else what torch's DistributedDataParallel
measures of some of its own passes. "Exposed" is what nothing hides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, TypeVar

from advisor.metrics.base import Metrics, Missing, Need, metric
from advisor.metrics.quantiles import quantile
from advisor.metrics.settings import data_parallel_size, primary_rank, world_size
from advisor.metrics.step import exposed_comm_fraction, micro_steps_per_step, steady, step_time_mean
from advisor.metrics.stretches import in_stretches
from advisor.profile import Rank
from profiler.schema import PHASES, DdpFact, Step
from profiler.store import Stretches

K = TypeVar("K", bound=Any)

FEWEST_SAMPLES = 4
"""Passes that torch has to have timed: it times ten early ones, and one in a hundred."""

WAITING = ("backward", "communication")
"""Phases in which ranks wait for one another."""

BESIDE = ("checkpoint_save", "evaluation")
"""Work between steps that may be one rank's alone."""

LOCKSTEP = (0.02, 0.5)
"""Ranks that wait for one another take equally long for their steps: within 2 %, and within half of what their own work
differs by."""


@metric(None)
def ddp(m: Metrics) -> DdpFact:
    """The DistributedDataParallel with the most gradients."""
    facts = [fact for fact in m[primary_rank].ddp if fact.passes]
    if not facts:
        raise Missing(
            "No DistributedDataParallel was seen in training",
            "Let the run go on past its first ten steps, with DistributedDataParallel as the outermost module.",
        )
    return max(facts, key=lambda fact: fact.gradient_bytes)


@metric("count", "reductions of gradients in a step")
def reductions_per_step(m: Metrics) -> float:
    """How often DistributedDataParallel reduces gradients for one update; 1 is enough."""
    fact = m[ddp]
    return fact.reduced / fact.passes * m[micro_steps_per_step]


@metric("B", "bytes sent to reduce gradients in a step")
def comm_bytes(m: Metrics) -> float:
    """What each rank sends a step in ring all-reduces: 2 (D-1)/D of the gradients, a reduction."""
    fact, ranks = m[ddp], m[data_parallel_size]
    if fact.comm_hook is not None:
        raise Missing("A communication hook reduces the gradients its own way", "Nothing: what it sends it knows.")
    return 2 * (ranks - 1) / ranks * fact.gradient_bytes * m[reductions_per_step]


@metric("s", "exposed communication in a step")
def exposed_comm_seconds(m: Metrics) -> float:
    """Seconds of a step in collectives that nothing hides, waiting for slower ranks among them."""
    if m[world_size] < 2:
        raise Missing("A single rank has nobody to talk to", "Run on several ranks.", Need.RANKS)
    share = m.get(exposed_comm_fraction)
    if share is not None:
        return share * m[step_time_mean]
    communication, overlap = _timed(m)
    return max(0.0, communication - overlap) * m[reductions_per_step]


@metric("s", "communication in a step")
def comm_total(m: Metrics) -> float:
    """Seconds of a step in collectives, hidden or not, waiting for slower ranks among them."""
    windows = [window for window in m[primary_rank].windows if window.communication is not None]
    steps = sum(window.steps for window in windows)
    if steps:
        return sum(window.communication or 0.0 for window in windows) / steps
    return _timed(m)[0] * m[reductions_per_step]


@metric("s", "exposed communication in a step but for waiting")
def exposed_transfer(m: Metrics) -> float:
    """Seconds of a step in collectives that nothing hides, once every rank is there."""
    return max(0.0, m[exposed_comm_seconds] - m[straggler_wait])


@metric("s", "waiting for slower ranks in a step")
def straggler_wait(m: Metrics) -> float:
    """Seconds of a mean step by which the slowest rank's own work, whichever that is, is longer than the primary's."""
    first, *others = m[own_work]
    rows = m[common_steps][0]
    waits = (
        step.count * max(0.0, max(each.seconds[row] for each in others) - first.seconds[row])
        for row, step in enumerate(rows)
    )
    return sum(waits) / m[common_step_count]


@metric("1", "how far the slowest rank is behind")
def straggler_skew(m: Metrics) -> float:
    """Slowest over lower median of the ranks' own work, less 1: each its median step without communication."""
    medians = [each.median for each in m[own_work]]
    skew = max(medians) / median_low(medians) - 1
    noise, part = LOCKSTEP
    spans = [rows[-1].start - rows[0].start for rows in m[common_steps]]
    if max(spans) - min(spans) > max(noise, part * skew) * min(spans):
        raise Missing("The ranks do not wait for one another", "Nothing, if they train models of their own.")
    return skew


@metric("1", "share of steps in which one rank is the slowest")
def straggler_persistence(m: Metrics) -> float:
    """Of the steps that are steady on every rank, in how many the rank that is slowest by its median is the slowest.

    By chance it is one over the number of ranks.
    """
    work = m[own_work]
    slowest = max(work, key=lambda each: each.median)
    rows = m[common_steps][0]
    often = sum(
        step.count for row, step in enumerate(rows) if slowest.seconds[row] == max(each.seconds[row] for each in work)
    )
    return often / m[common_step_count]


@metric("count", "steady steps of all ranks")
def common_step_count(m: Metrics) -> int:
    """Steps that were steady on every rank."""
    return sum(step.count for step in m[common_steps][0])


@dataclass(frozen=True, slots=True)
class Work:
    """What one rank does of its own in the steps that are steady on every rank."""

    rank: int
    seconds: tuple[float, ...]
    """Of each row."""
    median: float
    phases: Mapping[str, float]
    """Mean seconds of a step, but for WAITING; with the work between steps where some is as regular as they are."""


@metric(None)
def own_work(m: Metrics) -> tuple[Work, ...]:
    """Each rank's steps without communication, the primary rank's first.

    Where steps do not tell of communication, it lies in the backward pass, whose end needs every rank's gradients: then
    the shortest of the ranks' backward passes stands for all of them.
    """
    rows = m[common_steps]
    _train_one_model(m)
    if all(step.communication is not None for each in rows for step in each):
        times = [[_busy(step) - (step.communication or 0.0) for step in each] for each in rows]
    else:
        shortest = min(_median(each, [_backward(step) for step in each]) for each in rows)
        times = [[_busy(step) - _backward(step) + shortest for step in each] for each in rows]
    return tuple(
        Work(rank.process.rank, tuple(seconds), _median(each, seconds), _phases(each))
        for rank, each, seconds in zip(_ranks(m), rows, times, strict=True)
    )


@metric(None)
def common_steps(m: Metrics) -> tuple[tuple[Step, ...], ...]:
    """Of each rank the steps that are steady on every rank, the primary rank's first.

    Rows are steps or a few merged neighbours, which begin elsewhere on a rank that has other steps tagged. Where
    ranks share fewer than half of their rows, or many ranks were not read in full, a row is a stretch of steps instead:
    the mean of those of a rank that begin in it.
    """
    ranks = _ranks(m)
    if len(ranks) < 2:
        raise Missing(
            "The steps of one rank only were recorded", "Record all ranks: profile-train torchrun ...", Need.RANKS
        )
    rows = [steady(rank.steps) for rank in ranks]
    if m.profile.stretches is None:
        common = _common([{(step.index, step.count): step for step in each} for each in rows])
        if 2 * len(common[0]) >= len(rows[0]):
            return common
    last = max(step.index for each in rows for step in each)
    stretches = m.profile.stretches or Stretches.over(last, 1.0, max(step.count for each in rows for step in each))
    common = _common([in_stretches(each, stretches) for each in rows])
    if not common[0]:
        raise Missing("No step was steady on every rank", "Record more steps: 100 or so give a steady picture.")
    return common


def _common(rows: Sequence[Mapping[K, Step]]) -> tuple[tuple[Step, ...], ...]:
    """Of each rank, those that all of them have."""
    shared = sorted(set(rows[0]).intersection(*rows[1:]))
    return tuple(tuple(each[key] for key in shared) for each in rows)


def _busy(step: Step) -> float:
    """Its time with what falls between steps: the others wait for that, too."""
    return step.duration + sum(getattr(step, name) or 0.0 for name in BESIDE)


def _ranks(m: Metrics) -> Sequence[Rank]:
    """One process a rank: that which was started last, should one have been started anew."""
    latest = {}
    for rank in sorted(m.profile.ranks, key=lambda rank: rank.process.started):
        if rank.steps and rank.process.world_size > 1:
            latest[rank.process.rank] = rank
    return [latest[number] for number in sorted(latest)]


def _train_one_model(m: Metrics) -> None:
    """Stages of a pipeline do unequal work by design. FullyShardedDataParallel's ranks hold unequal shards."""
    ranks = [rank for rank in _ranks(m) if rank.models and not (rank.flags and rank.flags.fsdp)]
    if len({max(fact.parameters for fact in rank.models) for rank in ranks}) > 1:
        raise Missing("The ranks hold different parts of the model", "Nothing: such ranks differ by design.")


def _timed(m: Metrics) -> tuple[float, float]:
    """Of a pass that reduces: seconds of communication, and how many of them lie behind the backward pass."""
    fact = m[ddp]
    if fact.communication is None or fact.overlap is None or fact.samples < FEWEST_SAMPLES:
        raise Missing(
            "Too few reductions of gradients were timed", "Record more steps: torch times one reduction in a hundred."
        )
    return fact.communication, fact.overlap


def _backward(step: Step) -> float:
    if step.backward is None:
        raise Missing("The backward pass was not measured on every rank", "See the problems in the report.")
    return step.backward


def _median(rows: Sequence[Step], values: Sequence[float]) -> float:
    return quantile([(value, step.count) for step, value in zip(rows, values, strict=True)], 0.5)


def _phases(rows: Sequence[Step]) -> dict[str, float]:
    number = sum(step.count for step in rows)
    phases = {}
    for phase in PHASES:
        seconds = [(getattr(step, phase), step.count) for step in rows]
        if phase not in WAITING and all(value is not None for value, _ in seconds):
            phases[phase] = sum(value * count for value, count in seconds) / number
    for name in BESIDE:
        phases[name] = sum((getattr(step, name) or 0.0) * step.count for step in rows) / number
    return phases
