"""Summarize many ranks: how far apart they are, and which ones stand out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import quantiles
from typing import NamedTuple

from advisor.metrics.base import Metrics, if_measured
from advisor.metrics.communication import OwnWork, own_work
from advisor.metrics.step import mean_phases, steady
from advisor.metrics.weighted import quantile
from advisor.runs.profile import Profile, Rank, latest
from advisor.units import share
from profiler.schema import MOST_RANKS

FEW = 8
"""Most ranks that one chart can distinguish; more are summarized."""

MOST_NAMED = 16

MOST_ROWS = 64
"""Most ranks that the result lists one by one: 30 kB."""

FENCE = 3.0
"""Distance beyond the quartiles, in interquartile ranges, at which a rank is "far out".

Source: Tukey, Exploratory Data Analysis, 1977.
"""

LEAST = 0.02
"""Smallest distance from the median, as a share of it, at which a rank stands out.

If ranks are nearly the same, there may be closer outliers, which do not matter (assumption).
"""

STOPPED = 0.9
"""Share of the median rank's steps below which a rank has ended early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierRank:
    """A rank that stands out."""

    rank: int
    seconds: float | None
    """Seconds of its own work in a median step; None if it was not measured."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRank:
    """The measurements of one rank; None is not measured."""

    rank: int
    node: int
    host: str | None
    steps: int | None
    """Number of steps; None if there are many ranks and not all steps of this one were read."""
    step_time: float | None
    """Seconds of its median steady step."""
    phases: Mapping[str, float]
    """Seconds of each measured phase in its mean steady step."""
    memory_peak: int | None
    """Most bytes that torch's allocator held on a GPU."""
    events_lost: int
    remark: str
    """How the rank stands out; empty if it does not."""


class Spread(NamedTuple):
    """The least, median and greatest value over all ranks."""

    least: float
    median: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The ranks one by one; if more than MOST_ROWS, the first, the typical ones and those that stand out."""

    count: int = 0
    """Number of ranks that made steps."""
    unseen: tuple[int, ...] = ()
    """Ranks of the job without a step in any recording."""
    rows: tuple[OfRank, ...] = ()
    step_times: Spread | None = None
    """Seconds of all ranks' median steps."""
    memory_peaks: Spread | None = None
    """Bytes of all ranks' memory peaks."""
    many: int = 0
    """Number of recorded ranks if they are too many to show one by one; otherwise the fields below are empty."""
    spread: tuple[tuple[str, float], ...] = ()
    """Seconds of own work in a rank's median step: least, percentiles, most; empty if not measured."""
    typical: tuple[tuple[str, int], ...] = ()
    """The slowest, the median and the fastest rank."""
    named: tuple[OutlierRank, ...] = ()
    more: int = 0
    """Number of ranks that also stand out but are not named."""


def ranks(m: Metrics, profile: Profile) -> Ranks:
    """Return the ranks of the run that made steps; for a restarted rank, its last process."""
    by_number = latest(rank for rank in profile.ranks if rank.steps)
    work = m.get(own_work) or ()
    summary = _summary(work, profile.ranks) if profile.runs and len(profile.ranks) > FEW else Ranks()
    if not by_number:
        return summary
    remarks: dict[int, str] = {}
    for outlier in (*_apart(work), *_troubled(tuple(by_number.values()))):
        remarks[outlier.rank] = "; ".join(filter(None, (remarks.get(outlier.rank), outlier.why)))
    numbers = list(by_number)
    if len(by_number) > MOST_ROWS:
        typical = (rank for _, rank in _typical(work))
        numbers = list(dict.fromkeys((numbers[0], *typical, *remarks)))[:MOST_ROWS]
    world_size = min(max(rank.process.world_size for rank in by_number.values()), MOST_RANKS)
    return replace(
        summary,
        count=len(by_number),
        unseen=tuple(number for number in range(world_size) if number not in by_number),
        rows=tuple(_row(by_number[number], profile, remarks.get(number, "")) for number in sorted(numbers)),
        step_times=_spread_of(map(_median_step, by_number.values())),
        memory_peaks=_spread_of(map(_memory_peak, by_number.values())),
    )


def _summary(work: Sequence[OwnWork], recorded: Sequence[Rank]) -> Ranks:
    """Return how far apart many ranks are, and which ones stand out."""
    outliers, troubled_ranks = list(_apart(work)), list(_troubled(recorded))
    named = (*outliers[: max(MOST_NAMED // 2, MOST_NAMED - len(troubled_ranks))], *troubled_ranks)[:MOST_NAMED]
    return Ranks(
        many=len(recorded),
        spread=_spread(work),
        typical=_typical(work),
        named=named,
        more=len(outliers) + len(troubled_ranks) - len(named),
    )


def _row(rank: Rank, profile: Profile, remark: str) -> OfRank:
    process = rank.process
    all_steps_read = profile.stretches is None or process.rank == profile.ranks[0].process.rank
    return OfRank(
        rank=process.rank,
        node=process.node_rank,
        host=rank.host,
        steps=sum(step.count for step in rank.steps) if all_steps_read else None,
        step_time=_median_step(rank),
        phases=mean_phases(if_measured(steady, rank.steps) or ()),
        memory_peak=_memory_peak(rank),
        events_lost=process.events_lost,
        remark=remark,
    )


def _median_step(rank: Rank) -> float | None:
    steps = if_measured(steady, rank.steps)  # None if it ended in its first step
    return quantile([(step.duration, step.count) for step in steps], 0.5) if steps else None


def _memory_peak(rank: Rank) -> int | None:
    return max((fact.reserved_peak for fact in rank.memory_peaks), default=None)


def _spread_of(values: Iterable[float | None]) -> Spread | None:
    sorted_values = sorted(value for value in values if value is not None)
    return (
        Spread(sorted_values[0], sorted_values[len(sorted_values) // 2], sorted_values[-1]) if sorted_values else None
    )


def _spread(work: Sequence[OwnWork]) -> tuple[tuple[str, float], ...]:
    if not work:
        return ()
    medians = [row.median for row in work]
    tenths = quantiles(medians, n=10, method="inclusive")
    return (
        *(("least", min(medians)), ("10%", tenths[0]), ("median", tenths[4])),
        *(("90%", tenths[8]), ("most", max(medians))),
    )


def _typical(work: Sequence[OwnWork]) -> tuple[tuple[str, int], ...]:
    numbers = [row.rank for row in sorted(work, key=lambda row: row.median)]
    places = {"slowest": -1, "median": len(numbers) // 2, "fastest": 0}
    return tuple((name, numbers[place]) for name, place in places.items()) if numbers else ()


def _apart(work: Sequence[OwnWork]) -> Iterable[OutlierRank]:
    """Yield the ranks far from the others, the farthest first."""
    if len(work) < 2:
        return
    low, middle, high = quantiles([row.median for row in work], n=4, method="inclusive")
    if middle <= 0:
        return  # a share of zero is undefined
    margin = max(FENCE * (high - low), LEAST * middle)
    reference = min(work, key=lambda row: abs(row.median - middle))
    for row in sorted(work, key=lambda row: -abs(row.median - middle)):
        if not low - margin <= row.median <= high + margin:
            differences = {phase: seconds - reference.phases.get(phase, 0.0) for phase, seconds in row.phases.items()}
            sign = 1 if row.median > middle else -1
            phase = max(differences, key=lambda name: sign * differences[name], default="")
            where = f", mostly in {phase.replace('_', ' ')}" if phase else ""
            pace = f"{share(abs(row.median / middle - 1))} {'slower' if sign > 0 else 'faster'} than the median rank"
            yield OutlierRank(rank=row.rank, seconds=row.median, why=f"{pace}{where}")


def _troubled(found: Sequence[Rank]) -> Iterable[OutlierRank]:
    last_indices = sorted(rank.steps[-1].index for rank in found if rank.steps)
    median_index = last_indices[len(last_indices) // 2] if last_indices else 0
    for rank in found:
        process, index = rank.process, rank.steps[-1].index if rank.steps else None
        troubles = [
            *([f"{process.events_lost:,} of its events were lost"] if process.events_lost else []),
            *([f"ended by {rank.error.type}"] if rank.error else []),
            *([] if rank.steps else ["no step was seen"]),
            *([f"its last step is {index:,}"] if index is not None and index < STOPPED * median_index else []),
        ]
        if troubles:
            yield OutlierRank(rank=process.rank, seconds=None, why="; ".join(troubles))
