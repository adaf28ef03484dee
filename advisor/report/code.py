"""Find where in the program's code the time goes: hottest lines, a call tree per phase, source with heat."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from advisor.metrics.base import Metrics
from advisor.metrics.lines import (
    LITTLE,
    HotPlace,
    hot_places,
    is_own_work,
    is_worth_naming,
    places_between,
    sampled,
    stack_samples,
    worker_places,
)
from advisor.metrics.settings import on_cpu
from advisor.runs.profile import Profile
from advisor.runs.source import is_cell, source
from advisor.units import share
from profiler.grouping import grouped, totals
from profiler.schema import BETWEEN, Stack

__all__ = ["CallNode", "Code", "Heat", "HotLine", "HotPlace", "code", "evidence"]

SMALLEST = 0.01
"""Share of the step below which a call is left out."""

MOST_CALLS = 12
"""Most calls shown below one function."""

MOST_HEATED = 4
AROUND = 3
"""Lines shown before and after the hottest ones."""
MOST_LINES = 40

LEAST_SAMPLES = 10
"""Samples below which no sentence names a line: even the interval of its share is then rough."""

NAMED = 0.20
"""Share of the step from which the first sentence names a place ..."""
NAMED_LOW = 0.10
"""... and the minimum of the lower end of the share's interval: for a share of 20 %, 40 samples are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNode:
    """A phase, or a function in the tree of its calls."""

    name: str
    where: str = ""
    """File and line; for a library, its name."""
    own: bool = True
    """Whether it is the program's own code."""
    share: float
    calls: tuple[CallNode, ...] = ()


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of source, and the share of the step spent in it."""

    number: int
    text: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """The source of a hot function."""

    place: HotPlace
    lines: tuple[HotLine, ...]
    """Without text if the file has changed since the run."""
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Results of the sampled stacks of a run."""

    samples: int
    on_cpu: bool = True
    """Whether there is no GPU for which a line may wait."""
    places: tuple[HotPlace, ...]
    """The hottest places of a step."""
    workers: tuple[HotPlace, ...] = ()
    between: tuple[HotPlace, ...] = ()
    trees: tuple[CallNode, ...] = ()
    """The calls of each phase."""
    heated: tuple[Heat, ...] = ()

    def hottest(self, *phases: str) -> HotPlace | None:
        """Return the hottest place of these phases, or of a known kind, that is worth a sentence; None if none is."""
        if self.samples < LEAST_SAMPLES:
            return None
        candidates = (place for place in self.places if is_worth_naming(place, phases, on_cpu=self.on_cpu))
        return next((place for place in candidates if place.share >= NAMED and place.low >= NAMED_LOW), None)

    @property
    def hottest_between(self) -> HotPlace | None:
        """Return the place that takes most of the run between steps; None if none is worth a sentence."""
        candidates = (place for place in self.between if place.phase in BETWEEN)
        return next((place for place in candidates if place.share >= NAMED and place.low >= NAMED_LOW), None)

    @property
    def hottest_of_workers(self) -> HotPlace | None:
        """Return the place that takes most of the workers' time for a batch; None if none is worth a sentence."""
        candidates = (place for place in self.workers if place.low >= NAMED and is_own_work(place, on_cpu=True))
        return next(candidates, None)


# Kinds of places count as phases: without a framework, an evaluation is recognized by its source.
_EVIDENCE = {
    "data-workers-zero": ("data_wait",),
    "data-more-workers": ("fetch", "collate"),
    "data-offload-preprocess": ("data_wait", "fetch", "collate"),
    "data-cache-preprocess": ("data_wait", "fetch", "collate"),
    "data-io-format": ("data_wait", "fetch"),
    "data-collate": ("collate", "data_wait"),
    "ckpt-interval-daly": ("checkpoint_save",),
    "eval-less-often": ("evaluation",),
    "host-logging": ("logging", "metric", "other"),
}
"""Phases of stacks that show what a rule's advice is about."""

_OF = {"workers": "making batches", "between": "the run", "places": "a step"}


def evidence(rule: str, found: Code | None) -> tuple[HotPlace, str] | None:
    """Return the place behind a rule's finding, and a sentence with it; None if no sample shows one."""
    if found is None:
        return None
    for name, whole in _OF.items():
        phases = _EVIDENCE.get(rule, ())
        places = (place for place in getattr(found, name) if place.kind != "sampler")  # a sampler prepares no batch
        candidates = [place for place in places if place.phase in phases or place.kind in phases]
        if not candidates:
            continue
        # Prefer the program's own lines to those of torch's loader if they take a comparable share.
        own_places = (place for place in candidates if place.kind or is_own_work(place, on_cpu=True))
        place = next((place for place in own_places if place.share >= LITTLE * candidates[0].share), candidates[0])
        if place.low >= SMALLEST:
            return place, f"{share(place.share)} of {whole} is {place.name} in {place.where}."
    return None


def code(m: Metrics, profile: Profile) -> Code | None:
    """Return what the stacks of the first rank show; None without any."""
    rows = m.get(sampled)
    if not rows:
        return None
    places = m.get(hot_places) or ()
    return Code(
        samples=m[stack_samples],
        on_cpu=bool(m.get(on_cpu)),
        places=places,
        workers=m.get(worker_places) or (),
        between=m.get(places_between) or (),
        trees=_trees(rows),
        heated=tuple(_heat(place, rows, profile.started_at) for place in _worth_reading(places)),
    )


def _worth_reading(places: Sequence[HotPlace]) -> list[HotPlace]:
    by_function: dict[tuple[str, str], HotPlace] = {}
    for place in places:
        if place.phase not in ("backward", "optimizer") and place.share >= NAMED / 4:
            by_function.setdefault((place.file, place.function), place)
    return list(by_function.values())[:MOST_HEATED]


def _trees(rows: Sequence[Stack]) -> tuple[CallNode, ...]:
    total = sum(row.total for row in rows) or math.inf  # a damaged store may hold stacks without time: their share is 0
    trees = [
        CallNode(name=phase, share=sum(row.total for row in stacks) / total, calls=_calls(stacks, 0, total))
        for phase, stacks in grouped(rows, attrgetter("phase")).items()
    ]
    return tuple(sorted((tree for tree in trees if tree.share >= SMALLEST), key=lambda tree: -tree.share))


_without_line = itemgetter(0, 2, 3)


def _calls(rows: Sequence[Stack], depth: int, total: float) -> tuple[CallNode, ...]:
    deeper_stacks = (row for row in rows if depth < len(row.frames))
    by_function = grouped(deeper_stacks, lambda row: _without_line(row.frames[depth]))
    nodes = []
    for (file, function, library), stacks in by_function.items():
        seconds = sum(row.total for row in stacks)
        if seconds < SMALLEST * total:
            continue
        seconds_by_line = totals(stacks, lambda row: row.frames[depth][1])
        line = max(seconds_by_line, key=lambda number: seconds_by_line[number])
        nodes.append(
            CallNode(
                name=function,
                where=f"notebook cell, line {line}" if is_cell(file) else f"{file}:{line}",
                own=not library,
                share=seconds / total,
                calls=_calls(stacks, depth + 1, total),
            )
        )
    return tuple(sorted(nodes, key=lambda call: -call.share)[:MOST_CALLS])


def _heat(place: HotPlace, rows: Sequence[Stack], since: float) -> Heat:
    total = sum(row.total for row in rows)
    shares: dict[int, float] = defaultdict(float)
    for row in rows:
        numbers = {frame[1] for frame in row.frames if (frame[0], frame[2]) == (place.file, place.function)}
        for number in numbers:
            shares[number] += row.total / total
    hot_lines = [number for number, share in shares.items() if share >= SMALLEST] or [place.line]
    first, last = max(1, min(hot_lines) - AROUND), max(hot_lines) + AROUND
    if last - first >= MOST_LINES:
        first = max(1, place.line - MOST_LINES // 2)
        last = first + MOST_LINES
    source_lines = source(place.file, since)
    if source_lines is None:
        lines = tuple(HotLine(number, "", shares[number]) for number in sorted(hot_lines))
        return Heat(place=place, lines=lines, changed=True)
    line_numbers = range(first, min(last, len(source_lines)) + 1)
    lines = tuple(HotLine(number, source_lines[number - 1], shares.get(number, 0.0)) for number in line_numbers)
    return Heat(place=place, lines=lines, changed=False)
