"""Why one rank is slower than the others: what was measured on it and on the rank in the middle, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_low

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.communication import Work, own_work
from advisor.metrics.cores import cores
from advisor.metrics.hardware import is_busy
from advisor.metrics.step import step_time_mean
from advisor.profile import Rank
from advisor.units import digits, seconds, share
from profiler.schema import GpuSample

EXPLAINS = 0.5
"""Of what the slowest rank takes longer, what a cause must account for."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that was measured, and accounts for most of a rank's delay."""

    name: str
    """data, batches, host, gpu, saving, evaluation, gc or copies."""
    told: str
    """What was measured on the slowest rank and on the one in the middle."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The slowest rank, and that of the lower median: of two ranks, the other one."""

    slow: Work
    middle: Work

    @property
    def lost(self) -> float:
        """Seconds a step."""
        return self.slow.median - self.middle.median

    def excess(self, *phases: str) -> float:
        """Seconds a step by which these phases are longer on the slowest rank."""
        return sum(self.slow.phases.get(phase, 0.0) - self.middle.phases.get(phase, 0.0) for phase in phases)


@metric(None)
def slowest_pair(m: Metrics) -> Pair:
    """The slowest rank by its own work, and the one in the middle."""
    work = m[own_work]
    middle = median_low(each.median for each in work)
    return Pair(max(work, key=lambda each: each.median), min(work, key=lambda each: abs(each.median - middle)))


@metric(None)
def waits(m: Metrics) -> tuple[tuple[int, float], ...]:
    """Of each rank, seconds a step that it waits for the slowest: by which its own work is shorter; longest first."""
    work = m[own_work]
    slowest = max(each.median for each in work)
    return tuple(sorted(((each.rank, slowest - each.median) for each in work), key=lambda one: (-one[1], one[0])))


@metric("1", "imbalance of memory between ranks")
def memory_imbalance(m: Metrics) -> float:
    """Most memory that any rank has reserved on its GPU over the lower median of all ranks, less 1."""
    peaks = [max(fact.reserved_peak for fact in rank.memory_peaks) for rank in m.profile.ranks if rank.memory_peaks]
    if len(peaks) < 2 or not median_low(peaks):
        raise Missing("The GPU memory of several ranks was not measured", "Record all ranks of a run on GPUs.")
    return max(peaks) / median_low(peaks) - 1


@metric(None)
def straggler_causes(m: Metrics) -> tuple[Cause, ...]:
    """What was measured that accounts for at least half of the slowest rank's delay, likeliest first; empty if nothing
    does."""
    by_phase = (_phases(m[slowest_pair], *each) for each in _BY_PHASE)
    return (*(m.get(unequal_conditions) or ()), *(cause for cause in by_phase if cause is not None))


@metric(None)
def unequal_conditions(m: Metrics) -> tuple[Cause, ...]:
    """Of these causes, those that lie in what the two ranks were given: batches, clocks, cores."""
    pair = m[slowest_pair]
    ranks = {rank.process.rank: rank for rank in m.profile.ranks}
    slow, middle = ranks[pair.slow.rank], ranks[pair.middle.rank]
    found = (check(m, pair, slow, middle) for check in (_batches, _gpu, _host))
    return tuple(cause for cause in found if cause is not None)


_BY_PHASE = (
    ("gc", ("gc",), "collects garbage"),
    ("saving", ("checkpoint_save",), "saves checkpoints"),
    ("evaluation", ("evaluation",), "evaluates"),
    ("data", ("data_wait", "loader_overhead"), "waits for its DataLoader"),
    ("copies", ("h2d",), "copies to its GPU"),
)


def _phases(pair: Pair, name: str, phases: Sequence[str], does: str) -> Cause | None:
    if pair.excess(*phases) < EXPLAINS * pair.lost:
        return None
    own, other = (sum(work.phases.get(phase, 0.0) for phase in phases) for work in (pair.slow, pair.middle))
    return Cause(
        name, f"rank {pair.slow.rank} {does} for {seconds(own)} a step, rank {pair.middle.rank} for {seconds(other)}"
    )


def _batches(m: Metrics, pair: Pair, slow: Rank, middle: Rank) -> Cause | None:
    """As much larger as the rank is slower: most of the work grows with them."""
    for size, what in ((_tokens, "tokens"), (_samples, "samples")):
        own, other = size(slow), size(middle)
        if own and other and own / other - 1 >= EXPLAINS * pair.lost / pair.middle.median:
            return Cause(
                "batches",
                f"rank {pair.slow.rank} has {digits(own)} {what} a batch, rank {pair.middle.rank} {digits(other)}",
            )
    return None


def _samples(rank: Rank) -> float | None:
    trained = {fact.id for fact in rank.loaders if fact.training is not False}
    batches = [batch for batch in rank.batches if batch.loader in trained]
    count = sum(batch.count for batch in batches)
    return sum(batch.samples * batch.count for batch in batches) / count if count else None


def _tokens(rank: Rank) -> float | None:
    seen = [fact for fact in rank.paddings if fact.batches]
    count = sum(fact.batches for fact in seen)
    return sum(fact.padded for fact in seen) / count if count else None


def _gpu(m: Metrics, pair: Pair, slow: Rank, middle: Rank) -> Cause | None:
    """Kernels that compute take as much longer as the clock is lower."""
    own, other = (_clock(m, rank) for rank in (slow, middle))
    if own is None or other is None or other / own - 1 < EXPLAINS * pair.lost / pair.middle.median:
        return None
    return Cause(
        "gpu",
        f"the GPU of rank {pair.slow.rank} runs at {own:.0f} MHz while it computes, that of rank {pair.middle.rank} at "
        f"{other:.0f}",
    )


def _clock(m: Metrics, rank: Rank) -> float | None:
    """MHz of the rank's GPU while that is busy; None if it was not sampled, or is not known."""
    used = {fact.id for fact in rank.memory_peaks}
    uuids = {(fact.uuid or "").removeprefix("GPU-") for fact in rank.devices if fact.id in used} - {""}
    indices = {gpu.index for gpu in m.profile.gpus if gpu.uuid.removeprefix("GPU-") in uuids}
    return _mean([sample for sample in m.profile.gpu_samples if sample.gpu in indices], lambda sample: sample.sm_clock)


def _mean(samples: Sequence[GpuSample], value: Callable[[GpuSample], float | None]) -> float | None:
    busy = [sample for sample in samples if is_busy(sample)]  # an idle one's clock is low on purpose
    told = [(number, sample.count) for sample in busy if (number := value(sample)) is not None]
    return sum(number * count for number, count in told) / sum(count for _, count in told) if told else None


def _host(m: Metrics, pair: Pair, slow: Rank, middle: Rank) -> Cause | None:
    """Its thread is ready to run, and others have its cores."""
    own, other = (_starved(rank) for rank in (slow, middle))
    if own is None or other is None or (own - other) * m[step_time_mean] < EXPLAINS * pair.lost:
        return None
    mine, its = (len(cores(rank.process.cpus or "") or ()) for rank in (slow, middle))
    fewer = f"; it may use {mine} of them, rank {pair.middle.rank} {its}" if mine < its else ""
    return Cause(
        "host",
        f"rank {pair.slow.rank} waits {share(own)} of the time for a core that others use, rank {pair.middle.rank} "
        f"{share(other)}{fewer}",
    )


def _starved(rank: Rank) -> float | None:
    """Share of the time in which its main thread was ready to run, and did not."""
    told = rank.scheduling
    return told.waited / told.seconds if told is not None and told.seconds > 0 else None
