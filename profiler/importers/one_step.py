"""Show single steps of a trace in detail: what ran when, on which stream and thread, in few enough pieces to draw.

A step is shown from when the GPU reached it to when it reached the next one, with what the host did during that time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from profiler.importers.columns import CALL, MODULE, MODULE_PREFIX, Numbers
from profiler.importers.gpu_time import parts_of
from profiler.importers.intervals import Groups, Integers, Intervals, Spans, around, span
from profiler.importers.kineto import Trace
from profiler.importers.phases import passes_of
from profiler.importers.steps import MARK, PROFILER_STEP, Steps, numbers
from profiler.importers.tables import shown
from profiler.importers.work import GpuWork, HostActivity
from profiler.schema import STANDS_OUT, Lane, StepLook, Stretch

MOST = 2500
"""Maximum pieces of a step: about 60 kB of the page."""
COLUMNS = 4096
"""If there are too many pieces, those shorter than a step / COLUMNS are merged: a wide screen has fewer pixels."""
STREAMS, THREADS, LEVELS = 6, 2, 6
"""Maximum streams, host threads, and nesting levels of a thread's ranges that are shown."""
NAME = 90
"""Maximum characters of a name."""

_KINDS = ("compute", "communication", "memory")
_UNSEEN = (MARK, PROFILER_STEP)


@dataclass(frozen=True, slots=True)
class _Pieces(Intervals):
    """The pieces of a lane."""

    text: Integers
    kind: Integers
    level: Integers


def looks(trace: Trace, work: GpuWork, host: HostActivity, steps: Steps) -> tuple[StepLook, ...]:
    """Return the step of median length and, if it stands out, the slowest; without marks, the whole trace."""
    lengths, typical = np.diff(steps.reached), steps.typical
    slowest = len(lengths) - 1 - int(lengths[::-1].argmax())
    step_looks = [_look(trace, work, host, steps, typical, "typical")]
    if lengths[slowest] > STANDS_OUT * lengths[typical]:
        step_looks.append(_look(trace, work, host, steps, slowest, "slowest"))
    return tuple(step_looks)


def _look(
    trace: Trace, work: GpuWork, host: HostActivity, steps: Steps, at: int, which: Literal["typical", "slowest"]
) -> StepLook:
    begin, end = int(steps.reached[at]), int(steps.reached[at + 1])
    names, kinds = Numbers(), Numbers()
    step_work = work.where((work.start < end) & (work.end > begin))
    passes = passes_of(host, steps, span(begin, end))
    parts = parts_of(step_work, host, begin, end) if len(work) else passes
    ranges = trace.ranges
    host_rows = np.flatnonzero((ranges.category <= CALL) & (ranges.start < end) & (ranges.end > begin))
    host_rows = host_rows[~trace.named(lambda name: name.startswith(_UNSEEN))[host_rows]]
    named_pieces = [
        *([("GPU", _spans(parts, names, kinds))] if len(work) else []),
        *_streams(trace, step_work, names, kinds),
        ("Host: pass", _spans(passes, names, kinds)),
        ("Host: waits", _spans({"fetch": host.fetches, "wait": host.waits}, names, kinds)),
        *_threads(trace, step_work, host_rows, names, kinds, (end - begin) // COLUMNS),
    ]
    visible_pieces = [(name, visible) for name, pieces in named_pieces if len(visible := pieces.within(begin, end))]
    tick, lanes = 0, [_lane(name, pieces, begin, 0) for name, pieces in visible_pieces]
    while sum(len(lane.items) for lane in lanes) > MOST:
        tick = 2 * tick or max(1, (end - begin) // COLUMNS)
        lanes = [_lane(name, pieces, begin, tick) for name, pieces in visible_pieces]
    return StepLook(
        which=which,
        number=numbers(trace, steps)[at] if steps.marked else None,
        seconds=(end - begin) * 1e-9,
        parts={name: spans.total * 1e-9 for name, spans in parts.items()},
        stretches=tuple(
            _longest(trace, host_rows, name, spans, begin)
            for name, spans in parts.items()
            if name != "compute" and len(spans) and len(work)
        ),
        tick=tick * 1e-9,
        names=tuple(names),
        kinds=tuple(kinds),
        lanes=tuple(lanes),
    )


def _pieces(of: Intervals, text: Any, kind: Any, level: Any = 0) -> _Pieces:
    """Return the intervals as pieces; text, kind and level are given once for all or for each."""
    return _Pieces(of.start, of.end, *(np.broadcast_to(value, len(of)) for value in (text, kind, level)))


def _spans(parts: dict[str, Spans], names: Numbers, kinds: Numbers) -> _Pieces:
    """Return sets of time as pieces, named by their keys."""
    pieces = (_pieces(spans, names[name], kinds[name]).columns().values() for name, spans in parts.items())
    return _Pieces(*map(np.concatenate, zip(*pieces, strict=True)))


def _streams(trace: Trace, near: GpuWork, names: Numbers, kinds: Numbers) -> Iterator[tuple[str, _Pieces]]:
    groups = Groups(near.stream)
    busiest = groups.first[np.argsort(-groups.seconds(near.length), kind="stable")][:STREAMS]
    for stream in sorted(near.stream[busiest].tolist()):
        stream_work = near.where(near.stream == stream)
        kind = np.array([kinds[kind_name] for kind_name in _KINDS])[stream_work.kind]
        yield f"Stream {trace.streams[stream][1]}", _pieces(stream_work, _texts(trace, stream_work.name, names), kind)


def _threads(
    trace: Trace, near: GpuWork, rows: Integers, names: Numbers, kinds: Numbers, least: int
) -> Iterator[tuple[str, _Pieces]]:
    """Yield the threads that launch most, with their ranges; of very many ranges, only those long enough to see."""
    ranges = trace.ranges.where(rows[trace.ranges.category[rows] <= MODULE])
    if len(ranges) > 20 * MOST:
        ranges = ranges.where(ranges.length >= least)
    launch_counts = np.bincount(near.caller[near.caller >= 0], minlength=int(trace.ranges.thread.max(initial=0)) + 1)
    range_counts = np.bincount(ranges.thread, minlength=len(launch_counts))
    for thread in np.lexsort((-range_counts, -launch_counts)).tolist()[:THREADS]:
        thread_ranges = ranges.where(ranges.thread == thread)
        parents = around(thread_ranges.thread, thread_ranges.start, thread_ranges.end)
        level, ancestor = np.zeros(len(thread_ranges), np.int64), parents
        while (ancestor >= 0).any():
            level += ancestor >= 0
            ancestor = np.where(ancestor >= 0, parents[ancestor], -1)
        thread_ranges, level = thread_ranges.where(level < LEVELS), level[level < LEVELS]
        yield "Host: thread", _pieces(thread_ranges, _texts(trace, thread_ranges.name, names), kinds["operator"], level)


def _texts(trace: Trace, numbered: npt.NDArray[np.int32], names: Numbers) -> Integers:
    """Return the position of each name among the step's names."""
    numbers, positions = np.unique(numbered, return_inverse=True)
    texts = [names[shown(trace.names[number].removeprefix(MODULE_PREFIX))[:NAME]] for number in numbers.tolist()]
    return np.array(texts, np.int64)[positions.reshape(-1)]


def _lane(name: str, pieces: _Pieces, begin: int, tick: int) -> Lane:
    """Return the lane; neighbors that are all shorter than `tick` become one piece per tick.

    Such a piece has the text and kind of the longest one in it.
    """
    pieces = pieces.where(np.lexsort((pieces.start, pieces.level)))
    start, level = pieces.start, pieces.level
    small = pieces.length < tick
    bucket = start // max(1, tick)
    joins_previous = small[1:] & small[:-1] & (level[1:] == level[:-1]) & (bucket[1:] == bucket[:-1])
    first = np.flatnonzero(np.append(True, ~joins_previous))
    count = np.diff(np.append(first, len(start)))
    group = np.repeat(np.arange(len(first)), count)
    longest = pieces.where(np.lexsort((pieces.length, group))[np.append(first[1:], len(start)) - 1])
    reach = np.maximum.reduceat(pieces.end, first)
    columns = (start[first] - begin, reach - start[first], longest.text, longest.kind, level[first], count)
    items = tuple(zip(*(column.tolist() for column in columns), strict=True))
    return Lane(name=name, levels=int(level.max(initial=0)) + 1, items=items)


def _longest(trace: Trace, rows: Integers, name: str, spans: Spans, begin: int) -> Stretch:
    """Return the longest stretch of a part, with the shortest host range that covers more than half of it."""
    index = int(spans.length.argmax())
    start, end = int(spans.start[index]), int(spans.end[index])
    ranges = trace.ranges
    starts, ends = ranges.start[rows], ranges.end[rows]
    covering_rows = rows[2 * (np.minimum(ends, end) - np.maximum(starts, start)) > end - start]
    row = covering_rows[ranges.length[covering_rows].argmin()] if len(covering_rows) else -1
    host = shown(trace.names[ranges.name[row]].removeprefix(MODULE_PREFIX))[:NAME] if row >= 0 else ""
    return Stretch(part=name, start=(start - begin) * 1e-9, seconds=(end - start) * 1e-9, host=host)
