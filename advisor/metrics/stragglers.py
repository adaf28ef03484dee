"""Why one rank is slower than the others: its measurements compared with those of the median rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from advisor.metrics.base import Metrics, Missing, Need, metric
from advisor.metrics.communication import OwnWork, own_work
from advisor.metrics.hardware import busy_clock
from advisor.metrics.host import cores
from advisor.metrics.lines import HotPlace, places_of
from advisor.metrics.operators import computing_kernels
from advisor.metrics.settings import world_size
from advisor.metrics.step import step_time_mean
from advisor.metrics.weighted import column_mean
from advisor.runs.profile import Rank, latest
from advisor.units import digits, seconds, share

EXPLAINS = 0.5
"""Share of the slowest rank's delay that a cause must account for."""
FEWEST_COLLECTIVES = 30
FEWEST_SAMPLES = 10
"""Minimum number of samples of a line; with fewer, even the interval of its share is unreliable."""
LAST = 0.1
"""Largest wait in collectives of the rank that reaches them last, as a share of a typical rank's (assumption)."""
ALIKE = 0.02
"""Largest relative difference in the number of kernels of ranks that do the same work."""
SLOWER = 0.08
"""Relative extra time of the same kernels from which a GPU counts as slow.

GPUs of one kind differ this much in typical jobs (Sinha et al., Not All GPUs Are Created Equal, SC 2022).
"""


@dataclass(frozen=True, slots=True)
class Cause:
    """A measured cause that accounts for most of a rank's delay."""

    name: str
    """One of data, batches, host, gpu, saving, evaluation, gc and copies."""
    text: str
    """The measurements of the slowest rank and of the median rank, in words."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The slowest rank and the rank with the lower median; with two ranks, the other one."""

    slow: OwnWork
    middle: OwnWork

    @property
    def lost(self) -> float:
        """Return the seconds per step by which the slowest rank is behind."""
        return self.slow.median - self.middle.median

    def excess(self, *phases: str) -> float:
        """Return the seconds per step by which these phases are longer on the slowest rank."""
        return sum(self.slow.phases.get(phase, 0.0) - self.middle.phases.get(phase, 0.0) for phase in phases)


@metric(None)
def slowest_pair(m: Metrics) -> Pair:
    """The rank with the slowest own work, and the rank with the lower median."""
    works = m[own_work]
    middle = median_low(work.median for work in works)
    return Pair(max(works, key=lambda work: work.median), min(works, key=lambda work: abs(work.median - middle)))


@metric(None)
def waits(m: Metrics) -> tuple[tuple[int, float], ...]:
    """How long each rank waits for the slowest rank, in seconds per step, longest wait first.

    The wait is the difference between their own work.
    """
    works = m[own_work]
    slowest = max(work.median for work in works)
    return tuple(sorted(((work.rank, slowest - work.median) for work in works), key=lambda pair: (-pair[1], pair[0])))


@metric(None)
def slow_gpu(m: Metrics) -> int | None:
    """The rank whose GPU makes the others wait, from the traces of all ranks; None if there is no such rank.

    A collective ends on all ranks at the same time, so it is shortest on the rank that starts last. If the same kernels
    also take longer on that rank, its GPU is slow, not its host.
    """
    ranks = [rank for rank in m.profile.ranks if rank.traces]
    exchanges_by_rank = [[entry for entry in rank.traces[0].exchanges if entry.waited is not None] for rank in ranks]
    calls = min((sum(entry.calls for entry in exchanges) for exchanges in exchanges_by_rank), default=0)
    if len(ranks) < max(2, m[world_size]) or calls < FEWEST_COLLECTIVES:
        raise Missing(
            "The collectives of all ranks were not traced", "Pass the traces of all ranks at once.", Need.RANKS
        )
    waits_of = [sum(entry.waited or 0.0 for entry in exchanges) for exchanges in exchanges_by_rank]
    last = waits_of.index(min(waits_of))
    typical = median_low(waits_of[:last] + waits_of[last + 1 :])
    if waits_of[last] > LAST * typical:
        return None
    kernels = [_computing(rank) for rank in ranks]
    (own_calls, own_seconds), median_seconds = kernels[last], median_low(total for _, total in kernels)
    same_work = all(abs(entry - own_calls) <= ALIKE * own_calls for entry, _ in kernels)
    return (
        ranks[last].process.rank
        if same_work and median_seconds > 0 and own_seconds / median_seconds - 1 >= SLOWER
        else None
    )


def _computing(rank: Rank) -> tuple[int, float]:
    """Return how many kernels computed in the rank's trace, and their seconds."""
    kernels = computing_kernels(rank)
    return sum(kernel.calls for kernel in kernels), sum(kernel.total for kernel in kernels)


@metric("1", "memory imbalance between ranks")
def memory_imbalance(m: Metrics) -> float:
    """Largest GPU memory reserved by any rank divided by the lower median of all ranks, minus 1."""
    peaks = [max(fact.reserved_peak for fact in rank.memory_peaks) for rank in m.profile.ranks if rank.memory_peaks]
    if len(peaks) < 2 or not median_low(peaks):
        raise Missing("The GPU memory of several ranks was not measured", "Record all ranks of a run on GPUs.")
    return max(peaks) / median_low(peaks) - 1


@metric(None)
def straggler_causes(m: Metrics) -> tuple[Cause, ...]:
    """Measured causes that explain at least half of the slowest rank's delay, most likely first.

    Empty if there are none.
    """
    by_phase = (_phases(m[slowest_pair], *arguments) for arguments in _BY_PHASE)
    return (*(m.get(unequal_conditions) or ()), *(cause for cause in by_phase if cause is not None))


@metric(None)
def unequal_conditions(m: Metrics) -> tuple[Cause, ...]:
    """The causes that are unequal conditions of the two ranks: batches, clocks, cores."""
    pair = m[slowest_pair]
    ranks = latest(m.profile.ranks)
    slow, middle = ranks[pair.slow.rank], ranks[pair.middle.rank]
    causes = (check(m, pair, slow, middle) for check in (_batches, _gpu, _host))
    return tuple(cause for cause in causes if cause is not None)


@metric(None)
def straggler_place(m: Metrics) -> HotPlace:
    """The line that takes longer on the slowest rank than on another, by at least half of the slowest rank's delay."""
    pair = m[slowest_pair]
    ranks = latest(m.profile.ranks)
    slow = ranks.pop(pair.slow.rank)
    others = {number: places for number, rank in ranks.items() if (places := places_of(m, rank))}
    if not others:
        raise Missing("The stacks of two ranks of a node were not sampled", "Record for half a minute or longer.")
    usual_shares = {_key(place): place.share for place in others.get(pair.middle.rank) or min(others.items())[1]}
    excesses = [(place.low - usual_shares.get(_key(place), 0.0), place) for place in places_of(m, slow)]
    excess, place = max(excesses, key=lambda row: row[0], default=(0.0, None))
    if place is None or place.samples < FEWEST_SAMPLES or excess * m[step_time_mean] < EXPLAINS * pair.lost:
        raise Missing("No line takes much longer on the slowest rank than on the others", "Record for longer.")
    return place


def _key(place: HotPlace) -> tuple[str, str, int]:
    return place.file, place.function, 0 if place.whole else place.line


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
        name, f"rank {pair.slow.rank} {does} for {seconds(own)} per step, rank {pair.middle.rank} for {seconds(other)}"
    )


def _batches(m: Metrics, pair: Pair, slow: Rank, middle: Rank) -> Cause | None:
    """Return larger batches as a cause if their relative excess is at least half of the rank's relative delay.

    Most of the work grows with the batch.
    """
    for size, unit in ((_tokens, "tokens"), (_samples, "samples")):
        own, other = size(slow), size(middle)
        if own and other and own / other - 1 >= EXPLAINS * pair.lost / pair.middle.median:
            return Cause(
                "batches",
                f"rank {pair.slow.rank} has {digits(own)} {unit} per batch, rank {pair.middle.rank} {digits(other)}",
            )
    return None


def _samples(rank: Rank) -> float | None:
    loader_ids = {fact.id for fact in rank.loaders if fact.training is not False}
    return column_mean([batch for batch in rank.batches if batch.loader in loader_ids], "samples")


def _tokens(rank: Rank) -> float | None:
    facts = [fact for fact in rank.paddings if fact.batches]
    count = sum(fact.batches for fact in facts)
    return sum(fact.padded for fact in facts) / count if count else None


def _gpu(m: Metrics, pair: Pair, slow: Rank, middle: Rank) -> Cause | None:
    """Return a lower GPU clock as a cause; the time of computing kernels grows as the clock falls."""
    if m.get(slow_gpu) == pair.slow.rank:
        own, other = (_computing(rank)[1] for rank in (slow, middle))
        return Cause(
            "gpu",
            f"the same kernels take {seconds(own)} on rank {pair.slow.rank}, {seconds(other)} on rank "
            f"{pair.middle.rank}, and its collectives are the shortest",
        )
    low, high = (busy_clock(m.profile, rank) for rank in (slow, middle))
    if low is None or high is None or high / low - 1 < EXPLAINS * pair.lost / pair.middle.median:
        return None
    return Cause(
        "gpu",
        f"the GPU of rank {pair.slow.rank} runs at {low:.0f} MHz while it computes, that of rank {pair.middle.rank} at "
        f"{high:.0f}",
    )


def _host(m: Metrics, pair: Pair, slow: Rank, middle: Rank) -> Cause | None:
    """Return a lack of cores as a cause: the rank's thread is ready to run, but others use its cores."""
    own, other = (_starved(rank) for rank in (slow, middle))
    if own is None or other is None or (own - other) * m[step_time_mean] < EXPLAINS * pair.lost:
        return None
    own_cores, other_cores = (len(cores(rank.process.cpus or "") or ()) for rank in (slow, middle))
    fewer = (
        f"; it may use {own_cores} of them, rank {pair.middle.rank} {other_cores}" if own_cores < other_cores else ""
    )
    return Cause(
        "host",
        f"rank {pair.slow.rank} waits {share(own)} of the time for a core that others use, rank {pair.middle.rank} "
        f"{share(other)}{fewer}",
    )


def _starved(rank: Rank) -> float | None:
    """Return the share of time in which the rank's main thread was ready to run but did not."""
    scheduling = rank.scheduling
    return scheduling.waited / scheduling.seconds if scheduling is not None and scheduling.seconds > 0 else None
