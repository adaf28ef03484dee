"""Lines of the program's own code that take the time, from stacks sampled from outside.

A sample of the training process counts for one place: the function that the training loop calls, or the line of the
loop itself. The loop is every function that holds more than one phase of the step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.settings import primary_rank
from profiler.schema import Stack

Z = 1.96
"""Of a 95 % interval."""

MOST_PLACES = 12
"""Places kept of a phase."""

INNER = 0.8
"""Share of a function's time from which the function that it calls is named instead of it."""

LOOPS = ("forward", "backward", "optimizer", "data_wait")
"""Phases that a training loop is made of. A function that holds two of them is a part of it."""

_NAMELESS = frozenset(("inner", "wrapper", "decorate_context"))
"""Functions around others, which say nothing of them."""

_REMEDY = "Record with stacks (the default) for some seconds; `profile-train doctor` says whether they may be sampled."

_Key = tuple[str, str]
"""File and function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A function of the program's own code that takes time, and its hottest line."""

    phase: str
    file: str
    line: int
    function: str
    """The function's name; of a line in the training loop, the loop's function."""
    whole: bool
    """Whether the time is that of the whole function; else of the line alone."""
    share: float
    """Share of the step; of a worker, of the time in which it makes batches; between steps, of the run."""
    low: float
    """Lower end of the share's 95 % interval, by the number of samples."""
    high: float
    samples: int
    library: str
    """The library or standard module in which most of the time passes.

    It is "" for the program's own lines and what they call of C.
    """
    called: str
    """The library's function that the line calls, where most of the time passes in one; else empty."""

    @property
    def name(self) -> str:
        """Return the place's name for a sentence: a function, or a line of the loop."""
        if self.whole and all(part.isidentifier() for part in self.function.split(".")):
            return f"{self.function}()"
        called = self.called.rpartition(".")[2]
        if called.endswith("_call_impl"):
            return "the model, called"
        return f"{called}(), called" if called.isidentifier() and called not in _NAMELESS else "one line"

    @property
    def where(self) -> str:
        """Return the file's name and the line."""
        return f"{PurePath(self.file).name}:{self.line}"


def _own(stack: Stack) -> list[tuple[str, int, str, str]]:
    return [frame for frame in stack.frames if not frame[3]]


@metric(None)
def sampled(m: Metrics) -> tuple[Stack, ...]:
    """The stacks of the training process that were sampled in steady steps.

    In a run without such steps (an evaluation or a checkpoint in each) all of them.
    """
    rows = [row for row in m[primary_rank].stacks if row.role == "rank"]
    steady = [row for row in rows if row.steady]
    if not rows:
        raise Missing("No Python stacks were sampled", _REMEDY)
    return tuple(steady or rows)


@metric("count", "stacks sampled")
def stack_samples(m: Metrics) -> int:
    """Number of Python stacks sampled from the training process in steady steps."""
    return sum(row.samples for row in m[sampled])


@metric(None)
def hot_places(m: Metrics) -> tuple[Place, ...]:
    """The program's own functions and lines that take most of a step, the hottest first."""
    rows = m[sampled]
    return tuple(_places(rows, sum(row.total for row in rows), _loop(rows)))


@metric(None)
def worker_places(m: Metrics) -> tuple[Place, ...]:
    """The program's own functions and lines that take most of the time in which loader workers make batches."""
    rows = [row for row in m[primary_rank].stacks if row.role == "worker" and row.phase in ("fetch", "collate")]
    if not rows:
        raise Missing("No Python stacks of loader workers were sampled", _REMEDY)
    return tuple(_places(rows, sum(row.total for row in rows), frozenset()))


@metric(None)
def places_between(m: Metrics) -> tuple[Place, ...]:
    """The program's own lines that take most of the run between steady steps: saving, evaluation, starting epochs."""
    rows = [row for row in m[primary_rank].stacks if row.role == "rank"]
    if not rows:
        raise Missing("No Python stacks were sampled", _REMEDY)
    total = sum(row.total for row in rows)
    return tuple(_places([row for row in rows if not row.steady], total, _loop(rows)))


@metric(None)
def hot_place(m: Metrics) -> Place:
    """The place outside model, loader and optimizer that takes most of a step."""
    places = [place for place in m[hot_places] if place.phase in ("other", "logging", "metric")]
    if not places:
        raise Missing("No line of the program's own was sampled outside model, loader and optimizer", _REMEDY)
    return places[0]


@metric("1", "share of the step in the hottest place")
def hot_place_share(m: Metrics) -> float:
    """Share of the step in the one function or line outside model, loader and optimizer that takes most of it."""
    return m[hot_place].share


@metric("1", "share of the step in the hottest place, at least")
def hot_place_share_low(m: Metrics) -> float:
    """Lower end of the 95 % interval of that share, by the number of samples."""
    return m[hot_place].low


def is_own_work(place: Place, *, on_cpu: bool) -> bool:
    """Return whether the time is not that of one torch function, such as the loss, which the training needs.

    With a GPU, a line of the loop that calls no Python function may be a copy, in which the host waits for the GPU.
    """
    return place.whole or place.library not in ("torch", *(() if on_cpu else ("",)))


def _loop(rows: Iterable[Stack]) -> frozenset[_Key]:
    """Return the functions that hold more than one phase of the step."""
    phases: dict[_Key, set[str]] = defaultdict(set)
    for row in rows:
        if row.phase in LOOPS:
            for file, _, function, _ in _above_the_phase(row):
                phases[file, function].add(row.phase)
    return frozenset(key for key, held in phases.items() if len(held) > 1 or key[1] == "<module>")


def _above_the_phase(row: Stack) -> list[tuple[str, int, str, str]]:
    """Return the program's frames that called the library which makes the phase: those before its first frame.

    A framework that drives the loop lies above them; then all of the program's frames count.
    """
    own: list[tuple[str, int, str, str]] = []
    for frame in row.frames:
        if frame[3] in ("torch", "safetensors") and own:
            break
        if not frame[3]:
            own.append(frame)
    return own


def _places(rows: Sequence[Stack], total: float, loop: frozenset[_Key]) -> list[Place]:
    """Return where the time of these stacks passes, each sample counted once, the hottest place first."""
    parts: dict[tuple[str, str, str, int], list[Stack]] = defaultdict(list)
    for row in rows:
        own = _own(row)
        if not own:
            continue
        called = next((frame for frame in own if (frame[0], frame[2]) not in loop and frame[2] != "<module>"), None)
        if called is not None:
            parts[row.phase, called[0], called[2], 0].append(row)
        else:
            file, line, function, _ = own[-1]
            parts[row.phase, file, function, line].append(row)
    if not total:
        return []
    count = sum(row.samples for row in rows)
    found = [_place(key, held, total, count) for key, held in parts.items()]
    found.sort(key=lambda place: -place.share)
    kept: dict[str, int] = defaultdict(int)
    shown = []
    for place in found:
        kept[place.phase] += 1
        if kept[place.phase] <= MOST_PLACES:
            shown.append(place)
    return shown


def _place(key: tuple[str, str, str, int], rows: list[Stack], total: float, count: int) -> Place:
    phase, file, function, line = key
    seconds = sum(row.total for row in rows)
    if not line:
        file, function = _innermost(rows, (file, function), seconds)
        line = _hottest_line(rows, file, function)
    share = seconds / total
    low, high = interval(share, count)
    library, called = _passes_in(rows, seconds)
    return Place(
        phase=phase,
        file=file,
        line=line,
        function=function,
        whole=not key[3],
        share=share,
        low=low,
        high=high,
        samples=sum(row.samples for row in rows),
        library=library,
        called=called,
    )


def _innermost(rows: list[Stack], outer: _Key, seconds: float) -> _Key:
    """Return the function in which nearly all of this time passes, going down from the outer one."""
    at = outer
    passed = {at}
    while True:
        below: dict[_Key, float] = defaultdict(float)
        for row in rows:
            keys = [(frame[0], frame[2]) for frame in _own(row)]
            if at in keys:
                rest = keys[len(keys) - keys[::-1].index(at) :]
                if rest:
                    below[rest[0]] += row.total
        best = max(below, key=lambda key: below[key], default=None)
        if best is None or best in passed or below[best] < INNER * seconds:
            return at
        at = best
        passed.add(at)


def _hottest_line(rows: list[Stack], file: str, function: str) -> int:
    lines: dict[int, float] = defaultdict(float)
    for row in rows:
        for frame in reversed(row.frames):
            if (frame[0], frame[2]) == (file, function):
                lines[frame[1]] += row.total
                break
    return max(lines, key=lambda line: lines[line], default=0)


def _passes_in(rows: list[Stack], seconds: float) -> tuple[str, str]:
    """Return the library that the program's last line calls for most of this time, and its function."""
    libraries: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        after = row.frames[row.frames.index(_own(row)[-1]) + 1 :]
        libraries[_name(after[0]) if after else ("", "")] += row.total
    (library, function), most = max(libraries.items(), key=lambda item: item[1])
    whole = sum(value for (name, _), value in libraries.items() if name == library)
    return (library, function if most > seconds / 2 else "") if whole > seconds / 2 else ("", "")


def _name(frame: tuple[str, int, str, str]) -> tuple[str, str]:
    """Return the library of a frame, or the module if it is the standard library's, and the function."""
    file, _, function, library = frame
    return (file.partition("/")[0].removesuffix(".py") if library == "python" else library), function


def interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share that was seen in so many samples.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    if count <= 0:
        return 0.0, 1.0
    middle = share + Z * Z / (2 * count)
    margin = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count)) if 0 <= share <= 1 else 0.0
    whole = 1 + Z * Z / count
    return max(0.0, (middle - margin) / whole), min(1.0, (middle + margin) / whole)
