"""Export a run as a timeline of Chrome's trace events.

Perfetto (ui.perfetto.dev) and chrome://tracing load it. The format: "Trace Event Format", Duca and Sinclair, Google
2016. Each rank is a process with threads for the loop, the loader and the recorder. Each host and each GPU is also a
process, with a counter for each column of its samples. Steps of the first rank carry torch.profiler's names, so that
tools that read its traces can read these.
"""

import gzip
import heapq
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, cast

from msgspec.json import encode

from advisor.atomic_write import whole
from advisor.export.nodes import Node, identity, in_time
from advisor.export.stretches import ExportedStep, nanoseconds, stretches
from advisor.export.units import heading
from advisor.metrics.base import Metrics
from advisor.runs.profile import Profile, Rank
from profiler.schema import Batch, GpuSample, HostSample, MemorySample, Process, Step, Window
from profiler.version import __version__

Event = tuple[int, dict[str, Any]]
"""An event with its time in nanoseconds, the key for merging."""

LOOP, RECORDER, LOADER = 0, 1000, 2000
"""First thread numbers of a rank, by kind."""

PACKING = 6
"""Compression level, zlib's default. gzip's default is 9, which takes several times as long for little gain."""

AFTER_RANKS = 1_000_000
"""Sort index after all ranks."""

SHORT = 80
"""Characters of a problem that form its name; its arguments hold the full text."""

KEYS = {"time", "pid", "gpu", "device", "count"}
"""Columns that identify what a sample belongs to."""

MARK, PHASE = "user_annotation", "cpu_op"
"""Kineto's categories of a step and of its parts."""

ALSO = {
    "data_wait": (MARK, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    "backward": (PHASE, "autograd::engine::evaluate_function: backward"),
    "optimizer": (MARK, "Optimizer.step#"),
}
"""Names by which tools for torch.profiler's traces recognize phases.

They are drawn inside the phases of profile-train.
"""


@dataclass(frozen=True, slots=True)
class _Slice:
    """A range of a thread, with the ranges inside it."""

    start: int
    end: int
    name: str
    category: str
    args: dict[str, Any]
    inside: Sequence[tuple[str, str, int, int]] = ()
    """Category, name, start and end of each inner range."""


def write(nodes: Iterable[Node], metrics: Metrics, path: Path) -> None:
    """Write the timeline, compressed if the name ends in .gz.

    Each node's part is kept on disk until all parts are merged.

    Raises:
        ProfilerError: the timeline could not be written.
    """
    profile = metrics.profile
    with whole(path) as temporary, ExitStack() as stack:
        first = profile.ranks[0].process if profile.ranks else None
        numbers = itertools.count(1)
        # Perfetto drops events before zero, such as those of a node whose recorder began before the first node's.
        shift = -min([0.0, *(rank.clock(0.0) for rank in profile.ranks)])
        parts = []
        for original in nodes:
            node = replace(original, clock=replace(original.clock, offset=original.clock.offset - shift))
            part = stack.enter_context(TemporaryFile(dir=path.parent))
            part.writelines(
                b"%d\t%b\n" % (timestamp, encode(event)) for timestamp, event in _events(node, first, numbers)
            )
            part.seek(0)
            parts.append(part)
        file = stack.enter_context(_opened(temporary, path.suffix == ".gz"))
        file.write(json.dumps(_about(profile))[:-1].encode() + b', "traceEvents": [\n')
        separator = b""
        for line in heapq.merge(*parts, key=lambda line: int(line.partition(b"\t")[0])):
            file.write(separator + line.partition(b"\t")[2].rstrip(b"\n"))
            separator = b",\n"
        file.write(b"\n]}\n")


def _opened(path: Path, packed: bool) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "wb", PACKING)) if packed else open(path, "wb")


def _about(profile: Profile) -> dict[str, Any]:
    run, ranks = profile.runs[0], [rank.process for rank in profile.ranks]
    distributed = {"rank": ranks[0].rank, "world_size": max(ranks[0].world_size, len(ranks))} if ranks else {}
    return {
        "displayTimeUnit": "ms",
        "otherData": {"writer": f"profile-train {__version__}", "run": run.id, "command": list(run.command)},
        "distributedInfo": distributed,
    }


def _events(node: Node, first: Process | None, numbers: Iterator[int]) -> Iterator[Event]:
    """Yield the events of a node in time order; `numbers` supplies the numbers of processes."""
    streams: list[Iterable[Event]] = []
    process_numbers = {}
    for rank in node.ranks:
        process = rank.process
        number = process_numbers[process.pid] = next(numbers)
        streams.append(_named(number, f"rank {process.rank} (pid {process.pid}, {node.run.host})", process.rank))
        streams += _rank(node, rank, number, marked=first is not None and identity(process) == identity(first))
    host = next(numbers)
    streams += [_named(host, f"host {node.run.host}"), _counters(node, host, node.tables.host_samples)]
    streams.append(_problems(node, host, process_numbers))
    for gpu in node.tables.gpus:
        number = next(numbers)
        streams.append(_named(number, f"GPU {gpu.index}: {gpu.name} ({node.run.host})"))
        samples = [sample for sample in node.tables.gpu_samples if sample.gpu == gpu.index]
        streams.append(_counters(node, number, samples))
    return heapq.merge(*streams, key=itemgetter(0))


def _named(process: int, name: str, rank: int | None = None) -> Iterator[Event]:
    """Yield a process's name and sort index: ranks come first, in order."""
    yield _metadata(0, process, 0, "process_name", name=name)
    yield _metadata(0, process, 0, "process_sort_index", sort_index=AFTER_RANKS + process if rank is None else rank)


def _metadata(at: int, process: int, thread: int, kind: str, /, **args: Any) -> Event:
    return at, {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": args}


def _rank(node: Node, rank: Rank, number: int, *, marked: bool) -> Iterator[Iterable[Event]]:
    steps = in_time(rank.steps, attrgetter("start"))
    yield _slices(number, LOOP, "loop", _steps(node, steps, marked))
    yield _queue(node, number, steps)
    windows = in_time(rank.windows, attrgetter("start", "duration"))
    yield _slices(number, RECORDER, "recorder", (_window(node, window) for window in windows))
    for device in sorted({sample.device for sample in rank.memory_samples}):
        samples = [sample for sample in rank.memory_samples if sample.device == device]
        yield _counters(node, number, samples, f"cuda:{device} ")
    batches = in_time(rank.batches, attrgetter("start", "duration"))
    threads = {rank.process.pid: "loader, in the loop"}
    for worker in sorted(rank.workers, key=attrgetter("pid")):
        threads[worker.pid] = f"loader worker {worker.worker_id} (pid {worker.pid})"
    for position, (pid, name) in enumerate(threads.items()):
        slices = [_batch(node, batch) for batch in batches if batch.pid == pid]
        yield _slices(number, LOADER + 100 * position, name, slices)


def _slices(process: int, thread: int, name: str, slices: Iterable[_Slice]) -> Iterator[Event]:
    """Yield slices of a thread. They must not overlap, so overlapping ones move to another thread.

    Steps of two training threads overlap, and so do merged neighbors around single steps.
    """
    ends: list[int] = []
    for span in slices:
        lane = next((lane for lane, end in enumerate(ends) if end <= span.start), len(ends))
        if lane == len(ends):
            ends.append(0)
            label = name if lane == 0 else f"{name} ({lane + 1})"
            yield _metadata(span.start, process, thread + lane, "thread_name", name=label)
            yield _metadata(span.start, process, thread + lane, "thread_sort_index", sort_index=thread + lane)
        ends[lane] = span.end
        slice_fields = {"ph": "X", "pid": process, "tid": thread + lane}
        yield (
            span.start,
            {
                **slice_fields,
                "name": span.name,
                "cat": span.category,
                **_times(span.start, span.end),
                "args": span.args,
            },
        )
        for category, inner_name, start, end in span.inside:
            yield start, {**slice_fields, "name": inner_name, "cat": category, **_times(start, end)}


def _times(start: int, end: int) -> dict[str, float]:
    return {"ts": start / 1e3, "dur": (end - start) / 1e3}


def _steps(node: Node, steps: Sequence[Step], marked: bool) -> Iterator[_Slice]:
    since = _single_since(steps) if marked else math.inf
    for stretch in stretches(steps, node.clock):
        mark = stretch.step.start >= since
        yield _Slice(
            stretch.start,
            stretch.end,
            f"ProfilerStep#{stretch.step.index}" if mark else stretch.name,
            MARK if mark else "step",
            _arguments(stretch),
            list(_phases(stretch, mark)),
        )


def _single_since(steps: Sequence[Step]) -> float:
    """Return the time after which no row stands for several steps.

    Before it, single steps cannot be distinguished. Steps with and without tags are merged separately, so each kind's
    next single step begins after the last of its merged ones.
    """
    since = -math.inf
    for tagged in (False, True):
        rows = [step for step in steps if bool(step.tags) == tagged]
        if indices := [index for index, step in enumerate(rows) if step.count > 1]:
            since = max(since, rows[indices[-1] + 1].start if indices[-1] + 1 < len(rows) else math.inf)
    return since


def _phases(one: ExportedStep, mark: bool) -> Iterator[tuple[str, str, int, int]]:
    for name, start, end in one.phases:
        yield PHASE if mark else "phase", name, start, end
        if mark and name in ALSO:
            yield *ALSO[name], start, end


def _arguments(one: ExportedStep) -> dict[str, Any]:
    counts = {"steps": one.step.count, "batches": one.step.batches, "micro_steps": one.step.micro_steps}
    return {name: value for name, value in counts.items() if math.isfinite(value)} | {"tags": one.tags}


def _queue(node: Node, process: int, steps: Sequence[Step]) -> Iterator[Event]:
    for step in steps:
        if step.queue_depth is not None and math.isfinite(step.queue_depth):
            yield _counter(process, node.clock(step.start), "loader queue (batches)", step.queue_depth)


def _window(node: Node, window: Window) -> _Slice:
    args = {"steps": window.steps, "cost_s": window.cost if math.isfinite(window.cost) else None}
    return _Slice(*_range(node, window.start, window.duration), "torch.profiler window", "recorder", args)


def _batch(node: Node, batch: Batch) -> _Slice:
    name = "batch" if batch.count == 1 else f"{batch.count} batches"
    args = {"loader": batch.loader, "batches": batch.count}
    return _Slice(*_range(node, batch.start, batch.count * batch.duration), name, "loader", args)


def _range(node: Node, start: float, seconds: float) -> tuple[int, int]:
    begin = nanoseconds(node.clock(start))
    return begin, begin + max(0, nanoseconds(seconds))


def _counters(
    node: Node, process: int, samples: Iterable[GpuSample | HostSample | MemorySample], prefix: str = ""
) -> Iterator[Event]:
    """Yield counter events for each column; values that were not measured are left out."""
    for sample in in_time(samples, attrgetter("time")):
        for field in fields(sample):
            value = getattr(sample, field.name)
            if field.name not in KEYS and value is not None and math.isfinite(value):
                yield _counter(process, node.clock(sample.time), prefix + heading(type(sample), field.name), value)


def _counter(process: int, time: float, name: str, value: float) -> Event:
    timestamp = nanoseconds(time)
    return timestamp, {
        "ph": "C",
        "pid": process,
        "tid": 0,
        "name": name,
        "ts": timestamp / 1e3,
        "args": {"value": value},
    }


def _problems(node: Node, host: int, processes: dict[int, int]) -> Iterator[Event]:
    for problem in in_time(node.tables.problems, attrgetter("time")):
        timestamp = nanoseconds(node.clock(problem.time))
        yield (
            timestamp,
            {
                "ph": "i",
                "s": "p",
                "pid": processes.get(problem.pid or 0, host),
                "tid": RECORDER,
                "name": f"{problem.source}: {problem.message}"[:SHORT],
                "cat": "problem",
                "ts": timestamp / 1e3,
                "args": {"source": problem.source, "message": problem.message},
            },
        )
