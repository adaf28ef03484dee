"""The cost of training on several ranks: reducing gradients, and waiting for each other.

Collective times come from steps or profiler windows if these contain them, otherwise from the timings that torch's
DistributedDataParallel takes of some passes. Communication is "exposed" while no computation hides it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, TypeVar

from advisor.metrics.base import Metrics, Missing, Need, known, metric
from advisor.metrics.hardware import busy_clock
from advisor.metrics.settings import data_parallel_size, no_window, primary_rank, world_size
from advisor.metrics.step import (
    exposed_comm_fraction,
    gpu_windows,
    micro_steps_per_step,
    require_kernel_times,
    steady,
    step_time_mean,
    summed,
)
from advisor.metrics.stretches import in_stretches
from advisor.metrics.weighted import measured, quantile, weighted_mean
from advisor.models.sharding import all_reduce_bytes
from advisor.runs.profile import Rank, latest
from profiler.schema import PHASES, DdpFact, Exchange, Step
from profiler.store import Stretches

K = TypeVar("K", bound=Any)

FEWEST_SAMPLES = 4
"""Minimum number of passes timed by torch: it times ten early passes, and one in a hundred later."""

WAITING = ("backward", "communication")
"""Phases in which ranks wait for each other."""

LOWER_CLOCK = 0.15
"""Share by which a clock must be below the others to count as slower.

GPUs of one kind differ by 8 % in typical jobs (Sinha et al., Not All GPUs Are Created Equal, SC 2022).
"""
FEWEST_CLOCKS = 10
"""Minimum number of clock samples of a busy GPU."""

_DDP = "DistributedDataParallel"
OVERLAPPED = 0.5
"""Share of communication hidden by computation from which the overlap is intended (assumption)."""

BETWEEN_STEPS = ("checkpoint_save", "evaluation")
"""Work between steps that a single rank may do alone."""

LOCKSTEP = (0.02, 0.5)
"""Tolerance within which ranks that wait for each other take equally long.

Their total times differ by at most 2 %, or by at most half of the difference in their own work.
"""


@metric(None)
def ddp(m: Metrics) -> DdpFact:
    """The DistributedDataParallel model with the most gradients."""
    facts = (fact for fact in m[primary_rank].ddp if fact.passes)
    return known(
        max(facts, key=lambda fact: fact.gradient_bytes, default=None),
        "No DistributedDataParallel model was seen in training",
        "Let the run continue for more than ten steps, with DistributedDataParallel as the outermost module.",
    )


@metric("count", "gradient reductions per step")
def reductions_per_step(m: Metrics) -> float:
    """Number of gradient reductions by DistributedDataParallel per update; 1 is enough."""
    fact = m[ddp]
    return fact.reduced / fact.passes * m[micro_steps_per_step]


@metric("B", "bytes sent per step to reduce gradients")
def comm_bytes(m: Metrics) -> float:
    """Bytes that each rank sends per step in ring all-reduces: 2 (D-1)/D of the gradients per reduction."""
    fact, ranks = m[ddp], m[data_parallel_size]
    if fact.comm_hook is not None:
        raise Missing(
            "A communication hook changes how gradients are reduced",
            "Nothing to do: only the hook knows what it sends.",
        )
    return all_reduce_bytes(fact.gradient_bytes, ranks) * m[reductions_per_step]


@metric("s", "exposed communication per step")
def exposed_comm_seconds(m: Metrics) -> float:
    """Exposed seconds per step in collectives, including waiting for slower ranks."""
    if m[world_size] < 2:
        raise Missing("A single rank does not communicate", "Run on several ranks.", Need.RANKS)
    share = m.get(exposed_comm_fraction)
    if share is not None:
        return share * m[step_time_mean]
    communication, overlap = _timed(m)
    return max(0.0, communication - overlap) * m[reductions_per_step]


@metric(None, "collective that is exposed longest")
def exposed_collective(m: Metrics) -> Exchange:
    """The kind of collective (and process group) with the most exposed time in a profiler window or trace."""
    require_kernel_times(m)
    longest = max(_exchanges(m[primary_rank]), key=lambda exchange: exchange.exposed, default=None)
    remedy = "Run on several ranks, on GPUs, with windows enabled."
    return known(longest, "No collective on a GPU was recorded", remedy)


@metric("count", "collectives per step of the kind that is exposed longest")
def exposed_collective_calls(m: Metrics) -> float:
    """Collectives per step of the kind (and process group) with the most exposed time."""
    longest, rank = m[exposed_collective], m[primary_rank]
    steps = sum(window.steps for window in rank.windows if window.device == "cuda")
    if not steps:
        raise no_window(m)
    return sum(exchange.calls for exchange in _exchanges(rank) if _kind(exchange) == _kind(longest)) / steps


@metric(None)
def overlaps_backward(m: Metrics) -> bool:
    """Whether gradients are already reduced during the backward pass: DistributedDataParallel runs the model, or
    computing hides at least half of the communication.
    """
    rank = m[primary_rank]
    if any(name.startswith(_DDP) for operator in rank.operators for name in operator.path):
        return True
    return any((fact.overlap or 0.0) >= OVERLAPPED for fact in rank.traces)


@metric("B/s", "bandwidth of the collective that is exposed longest")
def exposed_bandwidth(m: Metrics) -> float:
    """Bytes per second over each rank's link in the collectives that are exposed longest ("bus bandwidth").

    Waiting for slower ranks is part of the time unless the traces of all ranks are available.
    """
    reason = "The trace does not show how many bytes the collectives move"
    return known(m[exposed_collective].bandwidth, reason, "Use torch 2.3 or newer, which records it.")


@metric("1", "share of the step in exposed collectives")
def exposed_collectives(m: Metrics) -> float:
    """Share of the step in exposed collectives. Waiting for slower ranks is excluded if it was measured."""
    exchanges = _exchanges(m[primary_rank])
    waited_seconds = sum(exchange.waited or 0.0 for exchange in exchanges)
    seconds = sum(exchange.seconds for exchange in exchanges)
    transfer = 1 - waited_seconds / seconds if seconds else 1.0
    wait = m.get(straggler_wait)
    wait_share = wait / m[step_time_mean] if wait else 0.0
    return max(0.0, min(m[exposed_comm_fraction] * transfer, m[exposed_comm_fraction] - wait_share))


@metric("s", "communication per step")
def comm_total(m: Metrics) -> float:
    """Seconds per step in all collectives, hidden and exposed, including waiting for slower ranks."""
    windows = [window for window in gpu_windows(m) if window.communication is not None]
    steps = sum(window.steps for window in windows)
    if steps:
        return sum(window.communication or 0.0 for window in windows) / steps
    return _timed(m)[0] * m[reductions_per_step]


@metric("s", "exposed communication per step, without waiting for slower ranks")
def exposed_transfer(m: Metrics) -> float:
    """Exposed seconds per step in collectives, without waiting for slower ranks."""
    return max(0.0, m[exposed_comm_seconds] - m[straggler_wait])


@metric("s", "waiting for slower ranks per step")
def straggler_wait(m: Metrics) -> float:
    """Mean seconds per step that the primary rank waits for slower ranks.

    This is the slowest rank's own work minus the primary rank's. The slowest rank is determined for each step.
    """
    first, *others = m[own_work]
    rows = m[common_steps][0]
    waits = (
        step.count * max(0.0, max(other.seconds[row] for other in others) - first.seconds[row])
        for row, step in enumerate(rows)
    )
    return sum(waits) / m[common_step_count]


@metric("1", "lag of the slowest rank")
def straggler_skew(m: Metrics) -> float:
    """Slowest rank's own work divided by the lower median of all ranks, minus 1.

    A rank's own work is its median step time without communication.
    """
    medians = [work.median for work in m[own_work]]
    skew = max(medians) / median_low(medians) - 1
    noise, part = LOCKSTEP
    spans = [rows[-1].start - rows[0].start for rows in m[common_steps]]
    if max(spans) - min(spans) > max(noise, part * skew) * min(spans):
        raise Missing("The ranks do not wait for each other", "Nothing to do, if each rank trains its own model.")
    return skew


@metric("1", "share of steps in which one rank is the slowest")
def straggler_persistence(m: Metrics) -> float:
    """Share of steps in which the rank with the longest median is the slowest.

    Only steps that are steady on every rank count. If no rank is slower than the others, the share is about one divided
    by the number of ranks.
    """
    works = m[own_work]
    slowest = max(works, key=lambda work: work.median)
    rows = m[common_steps][0]
    steps = sum(
        step.count for row, step in enumerate(rows) if slowest.seconds[row] == max(work.seconds[row] for work in works)
    )
    return steps / m[common_step_count]


@metric("count", "steady steps of all ranks")
def common_step_count(m: Metrics) -> int:
    """Number of steps that are steady on every rank."""
    return sum(step.count for step in m[common_steps][0])


@dataclass(frozen=True, slots=True)
class OwnWork:
    """One rank's own work in the steps that are steady on every rank."""

    rank: int
    seconds: tuple[float, ...]
    """Seconds of each row."""
    median: float
    phases: Mapping[str, float]
    """Mean seconds per step of each phase except `WAITING`, and of the work between steps (`BETWEEN_STEPS`)."""


@metric(None)
def own_work(m: Metrics) -> tuple[OwnWork, ...]:
    """Each rank's step times without communication; the primary rank is first.

    If steps do not show communication, it is a part of the backward pass, which ends only when all ranks' gradients are
    reduced. The shortest backward pass of all ranks then stands for every rank. If a rank's GPU is slower, according to
    its clock or to DistributedDataParallel's timings, the passes of the other ranks count as shorter, by the speed of
    their own GPUs.
    """
    rows = m[common_steps]
    _train_one_model(m)
    if all(step.communication is not None for steps in rows for step in steps):
        times = [[_busy(step) - (step.communication or 0.0) for step in steps] for steps in rows]
    else:
        shortest = min(_median(steps, [_backward(step) for step in steps]) for steps in rows)
        waits_by_rank = _spared(m, rows, shortest)
        times = [
            [_busy(step) - _backward(step) + shortest - wait for step, wait in zip(steps, waits, strict=True)]
            for steps, waits in zip(rows, waits_by_rank, strict=True)
        ]
    return tuple(
        OwnWork(rank.process.rank, tuple(seconds), _median(steps, seconds), _phases(steps))
        for rank, steps, seconds in zip(_ranks(m), rows, times, strict=True)
    )


def _spared(m: Metrics, rows: Sequence[Sequence[Step]], backward: float) -> list[list[float]]:
    """Return, by rank and row, the seconds that the forward pass, `backward` and the update wait for a slower rank.

    The rest is the slower rank's time for them, scaled to this rank's speed. If forward passes do not wait (all but
    FSDP's), the scale is at least the ratio of their times, because memory-bound work does not scale with the clock.
    Zero if no rank is known to be slower.
    """
    ranks, waits_by_rank = _ranks(m), [[0.0] * len(steps) for steps in rows]
    speeds = _clocks(m, ranks) or _speeds(ranks)
    forwards = [_median(steps, [step.forward or 0.0 for step in steps]) for steps in rows]
    if not speeds or not min(forwards):
        return waits_by_rank
    slow = speeds.index(min(speeds))
    waits_in_forward = any(rank.flags is not None and rank.flags.fsdp for rank in ranks)
    for number, steps in enumerate(rows):
        ratio = speeds[slow] / speeds[number]
        if not waits_in_forward:
            ratio = max(ratio, forwards[number] / forwards[slow])
        for row, (step, slowest) in enumerate(zip(steps, rows[slow], strict=True)):
            own_seconds, slowest_seconds = (
                backward + (side.forward or 0.0) + (side.optimizer or 0.0) for side in (step, slowest)
            )
            waits_by_rank[number][row] = max(0.0, own_seconds - ratio * slowest_seconds)
    return waits_by_rank


def _clocks(m: Metrics, ranks: Sequence[Rank]) -> list[float] | None:
    """Return the clock of each rank's busy GPU; None unless one is below the others by LOWER_CLOCK."""
    clocks = [busy_clock(m.profile, rank, FEWEST_CLOCKS) or 0.0 for rank in ranks]
    return clocks if 0 < min(clocks) <= (1 - LOWER_CLOCK) * median_low(clocks) else None


def _speeds(ranks: Sequence[Rank]) -> list[float] | None:
    """Return each rank's backward passes per second without waiting, from the passes that torch timed.

    None if they were not timed on every rank.
    """
    facts = [max(rank.ddp, key=lambda fact: fact.gradient_bytes, default=None) for rank in ranks]
    times = [fact.compute for fact in facts if fact is not None and fact.compute and fact.samples >= FEWEST_SAMPLES]
    return [1 / time for time in times] if len(times) == len(ranks) else None


@metric(None)
def common_steps(m: Metrics) -> tuple[tuple[Step, ...], ...]:
    """The steps of each rank that are steady on every rank; the primary rank is first.

    A row is a step or a few merged steps. If tags differ between ranks, their rows start at different steps. If ranks
    share fewer than half of their rows, or many ranks were not read completely, a row is a stretch of steps instead:
    the mean of the rank's steps that begin in it.
    """
    ranks = _ranks(m)
    if len(ranks) < 2:
        raise Missing("Only one rank's steps were recorded", "Record all ranks: profile-train torchrun ...", Need.RANKS)
    rows = [steady(rank.steps) for rank in ranks]
    if m.profile.stretches is None:
        common = _common([{(step.index, step.count): step for step in steps} for steps in rows])
        if 2 * len(common[0]) >= len(rows[0]):
            return common
    last = max(step.index for steps in rows for step in steps)
    stretches = m.profile.stretches or Stretches.over(last, 1.0, max(step.count for steps in rows for step in steps))
    common = _common([in_stretches(steps, stretches) for steps in rows])
    if not common[0]:
        raise Missing("No step was steady on every rank", "Record more steps: about 100 give reliable statistics.")
    return common


def _exchanges(rank: Rank) -> list[Exchange]:
    """Return the collectives of all windows of the rank: one entry per window and kind."""
    return [exchange for fact in rank.traces for exchange in fact.exchanges]


def _kind(exchange: Exchange) -> tuple[str, str, int | None, str]:
    return exchange.name, exchange.group, exchange.ranks, exchange.dtype


def _common(rows: Sequence[Mapping[K, Step]]) -> tuple[tuple[Step, ...], ...]:
    """Return each rank's steps that all ranks have."""
    keys = sorted(set(rows[0]).intersection(*rows[1:]))
    return tuple(tuple(steps[key] for key in keys) for steps in rows)


def _busy(step: Step) -> float:
    """Return the step's seconds including the work between steps, because the other ranks wait for that, too."""
    return step.duration + sum(getattr(step, name) or 0.0 for name in BETWEEN_STEPS)


def _ranks(m: Metrics) -> Sequence[Rank]:
    """Return one process per rank, the one that started last if a rank was restarted."""
    by_rank = latest(rank for rank in m.profile.ranks if rank.steps and rank.process.world_size > 1)
    return list(by_rank.values())


def _train_one_model(m: Metrics) -> None:
    """Raise Missing if ranks hold different parts of the model.

    Pipeline stages do unequal work by design. FullyShardedDataParallel is exempt, because its ranks hold unequal
    shards of one model.
    """
    ranks = [rank for rank in _ranks(m) if rank.models and not (rank.flags and rank.flags.fsdp)]
    if len({max(fact.parameters for fact in rank.models) for rank in ranks}) > 1:
        raise Missing(
            "The ranks hold different parts of the model", "Nothing to do: these ranks have different work by design."
        )


def _timed(m: Metrics) -> tuple[float, float]:
    """Return the seconds of communication in a reducing pass, and how many of them are hidden."""
    fact = m[ddp]
    if fact.communication is None or fact.overlap is None or fact.samples < FEWEST_SAMPLES:
        raise Missing(
            "Too few gradient reductions were timed", "Record more steps: torch times one reduction in a hundred."
        )
    return fact.communication, fact.overlap


def _backward(step: Step) -> float:
    reason = "The backward pass was not measured on every rank"
    return known(step.backward, reason, "See the problems listed in the report.")


def _median(rows: Sequence[Step], values: Sequence[float]) -> float:
    return quantile([(value, step.count) for step, value in zip(rows, values, strict=True)], 0.5)


def _phases(rows: Sequence[Step]) -> dict[str, float]:
    """Return the mean seconds of the phases that every row measured, and of the work between steps."""
    count = sum(step.count for step in rows)
    seconds = {name: measured(rows, name) for name in PHASES if name not in WAITING}
    phases = {name: weighted_mean(values) for name, values in seconds.items() if len(values) == len(rows)}
    return phases | {name: (summed(rows, name) or 0.0) / count for name in BETWEEN_STEPS}
