"""Many ranks, summed up: how far apart they are, and by name those that stand out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles

from advisor.metrics.base import Metrics
from advisor.metrics.communication import Work, own_work
from advisor.profile import Profile, Rank
from advisor.units import share

FEW = 8
"""As many can be told apart in one chart; more are summed up."""

MOST_NAMED = 16

FENCE = 3.0
"""Interquartile ranges beyond the quartiles from which a rank is "far out" (Tukey, Exploratory Data Analysis, 1977)."""

LEAST = 0.02
"""Of the median: what is nearer to it stands out from ranks that are all alike, and matters to nobody (assumption)."""

STOPPED = 0.9
"""Share of the median rank's steps below which a rank has ended early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A rank that stands out."""

    rank: int
    seconds: float | None
    """Of its own work in a median step; None where that was not measured."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """All of a run's ranks."""

    count: int
    spread: tuple[tuple[str, float], ...] = ()
    """Seconds of own work in a rank's median step: least, percentiles, most; none where it was not measured."""
    typical: tuple[tuple[str, int], ...] = ()
    """Which rank is the slowest, the median one and the fastest."""
    named: tuple[Named, ...] = ()
    more: int = 0
    """That stand out, too, and are not named."""


def ranks(m: Metrics, profile: Profile) -> Ranks | None:
    """Those of the run; None where they are few enough to be shown one by one."""
    if len(profile.ranks) <= FEW:
        return None
    work = m.get(own_work) or ()
    apart, troubled = list(_apart(work)), list(_troubled(profile.ranks))
    named = (*apart[: max(MOST_NAMED // 2, MOST_NAMED - len(troubled))], *troubled)[:MOST_NAMED]
    ordered = sorted(work, key=lambda each: each.median)
    return Ranks(
        count=len(profile.ranks),
        spread=_spread([each.median for each in ordered]) if ordered else (),
        typical=_typical(ordered) if ordered else (),
        named=named,
        more=len(apart) + len(troubled) - len(named),
    )


def _spread(seconds: Sequence[float]) -> tuple[tuple[str, float], ...]:
    tenths = quantiles(seconds, n=10, method="inclusive")
    at = {"least": seconds[0], "10%": tenths[0], "median": tenths[4], "90%": tenths[8], "most": seconds[-1]}
    return tuple(at.items())


def _typical(ordered: Sequence[Work]) -> tuple[tuple[str, int], ...]:
    return (
        ("slowest", ordered[-1].rank),
        ("median", ordered[len(ordered) // 2].rank),
        ("fastest", ordered[0].rank),
    )


def _apart(work: Sequence[Work]) -> Iterable[Named]:
    """Those far from the others, the farthest first."""
    if len(work) < 2:
        return
    low, middle, high = quantiles([each.median for each in work], n=4, method="inclusive")
    margin = max(FENCE * (high - low), LEAST * middle)
    usual = min(work, key=lambda each: abs(each.median - middle))
    for each in sorted(work, key=lambda each: -abs(each.median - middle)):
        if not low - margin <= each.median <= high + margin:
            more = {phase: own - usual.phases.get(phase, 0.0) for phase, own in each.phases.items()}
            sign = 1 if each.median > middle else -1
            phase = max(more, key=lambda name: sign * more[name], default="")
            where = f", mostly in {phase.replace('_', ' ')}" if phase else ""
            than = f"{share(abs(each.median / middle - 1))} {'slower' if sign > 0 else 'faster'} than the median rank"
            yield Named(rank=each.rank, seconds=each.median, why=f"{than}{where}")


def _troubled(found: Sequence[Rank]) -> Iterable[Named]:
    last = sorted(rank.steps[-1].index for rank in found if rank.steps)
    usual = last[len(last) // 2] if last else 0
    for rank in found:
        process = rank.process
        told = [
            *([f"{process.events_lost:,} of its events were lost"] if process.events_lost else []),
            *([f"ended by {rank.error.type}"] if rank.error else []),
            *([] if rank.steps else ["no step was seen"]),
            *([f"its last step is {rank.steps[-1].index:,}"] if _stopped(rank, usual) else []),
        ]
        if told:
            yield Named(rank=process.rank, seconds=None, why="; ".join(told))


def _stopped(rank: Rank, usual: int) -> bool:
    return bool(rank.steps) and rank.steps[-1].index < STOPPED * usual
