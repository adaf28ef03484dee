"""Traces that torch.profiler wrote, one file a rank: as a profile, and what they tell beyond one."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.profile import Profile, Rank
from profiler.errors import ProfilerError
from profiler.importers.analysis import Analysis
from profiler.importers.breakdown import Breakdown
from profiler.importers.collectives import waits
from profiler.importers.critical_path import Part
from profiler.importers.several import analyse_all
from profiler.schema import DeviceFact, Kernel, Problem, Process

PARTS = {
    "compute": ("forward", "Computing", "Some kernel computed."),
    "communication_exposed": (
        "communication",
        "Communication",
        "A collective ran, and nothing computed meanwhile.",
    ),
    "memory_exposed": ("h2d", "Moving memory", "Only a copy or a fill ran."),
    "idle_data": ("data_wait", "Idle: host fetches a batch", "Nothing ran while the host was in next(loader)."),
    "idle_sync": (
        "sync",
        "Idle: host had waited for it",
        "The host waited for the GPU (.item(), .cpu(), a print), so that nothing was queued when it was done.",
    ),
    "idle_launch": ("loader_overhead", "Idle: launch came late", "The host asked for the next kernel too late."),
    "idle_queued": (
        "other",
        "Idle: queued",
        "The next work was asked for in time, and waited for another stream.",
    ),
}
"""Of a breakdown: the colour of a part, its label, and what it is."""

LINKS = {
    "compute": "computing",
    "communication": "communication",
    "memory": "moving memory",
    "gpu_gap": "between kernels that were queued",
    "launch": "from a launch to its kernel",
    "data": "the host fetching a batch",
    "host": "the host asking for work",
    "sync": "the host noticing that the GPU was done",
}


_BY_THEIR_NAME = re.compile(r"\.pt\.trace\.json(\.gz)?$")
_OF_A_WORKER = re.compile(r"(.+)\.(\d{10,})\.pt\.trace\.json(?:\.gz)?$")
"""As tensorboard_trace_handler names them: the process, and when its window was saved."""

_HEAD = 1 << 20
"""Bytes of a file in which the events of a trace begin: before them come a few hundred bytes a GPU."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the time that is analysed, or of a step's critical path."""

    name: str
    label: str
    meaning: str
    colour: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Collectives of one kind and group."""

    name: str
    group: str
    ranks: int | None
    dtype: str
    calls: int
    seconds: float
    exposed: float
    waited: float | None
    """Seconds for ranks that came later; None unless the traces of all of them are there."""
    bytes: int | None
    bandwidth: float | None
    """Bytes/s on the bus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Of the stream with most launches, work that is asked for and has not begun."""

    mean: float
    most: int
    empty: float
    """Share of the time in which there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """What launches cost; times in seconds."""

    calls: int
    median: float
    p99: float
    slow: int
    """Calls above 50 us."""
    delay: float
    """Median from the end of a call to the start of its work."""
    shorter: float
    """Share of the calls that took longer than what they launched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What one trace tells. What it cannot is None, or empty."""

    rank: int
    file: str
    events: int
    steps: int | None
    """Marked ones that are analysed; None if it is taken as a whole."""
    seconds: float
    parts: tuple[Share, ...]
    idle: float | None
    """Share of the time."""
    overlap: float | None
    """Share of communication that is hidden by computing; None without any."""
    queue: Waiting | None
    launches: Launching | None
    critical: tuple[Share, ...]
    """Of the step of median length."""
    exchanges: tuple[Exchange, ...]
    kinds: tuple[Share, ...]
    """Of the time of kernels, or on a CPU of operators, each by itself; most first."""
    tensor_cores: float | None
    """Share of the time of kernels in those known to use tensor cores; None without a GPU."""


def in_folder(folder: Path) -> tuple[tuple[Path, ...], str]:
    """The traces that lie in a folder, of each process its last, and what is to be said of the others.

    Raises:
        ProfilerError: there is none.
    """
    try:
        named = [path for path in sorted(folder.iterdir()) if path.name.endswith((".json", ".json.gz"))]
    except OSError as error:
        raise ProfilerError(
            f"The folder {folder} cannot be read: {error.strerror or error}.", "Give one that you may read."
        ) from error
    files = [path for path in named if _is_trace(path)]
    if not files:
        raise ProfilerError(
            f"{folder} holds neither a recording nor traces.",
            "Give the folder that a run of profile-train has written, or one into which torch.profiler has written "
            "*.pt.trace.json, as its tensorboard_trace_handler does.",
        )
    last: dict[str, tuple[int, Path]] = {}
    for path in files:
        of_a_worker = _OF_A_WORKER.match(path.name)
        process, saved = (of_a_worker[1], int(of_a_worker[2])) if of_a_worker else (path.name, 0)
        last[process] = max(last.get(process, (-1, path)), (saved, path))
    older = len(files) - len(last)
    told = f"Of each process this is about the last trace; {older} earlier ones in {folder} are left out."
    return tuple(path for _, path in last.values()), told if older else ""


def _is_trace(path: Path) -> bool:
    """By its name or, as other JSON may lie beside, by how it begins. What cannot be read may be one, to be told."""
    if not path.is_file() or _BY_THEIR_NAME.search(path.name):
        return path.is_file()
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head.startswith(b"\x1f\x8b"):
            head = zlib.decompressobj(31).decompress(head, _HEAD)
    except OSError:
        return True
    except zlib.error:
        return False
    return b'"traceEvents"' in head or (head.lstrip().startswith(b"[") and b'"ph"' in head)


def load(paths: Sequence[Path]) -> tuple[Profile, tuple[Traced, ...]]:
    """The traces at `paths`, by rank. One that cannot be read is a problem as long as there is another.

    Raises:
        ProfilerError: none of them can be read.
    """
    read = analyse_all(paths)
    found = [each for each in read if isinstance(each, Analysis)]
    failures = [each for each in read if isinstance(each, ProfilerError)]
    if not found:
        raise failures[0]
    numbers, notes = _numbers(found)
    ordered = sorted(zip(numbers, found, strict=True), key=lambda pair: pair[0])
    exchanged = waits([each.collectives for _, each in ordered])
    ordered = [
        (number, replace(each, collectives=known)) for (number, each), known in zip(ordered, exchanged, strict=True)
    ]
    told = [*(str(failure) for failure in failures), *notes, *(p for _, each in ordered for p in each.problems)]
    profile = Profile(
        runs=(),
        ranks=tuple(_rank(number, each, len(found)) for number, each in ordered),
        problems=tuple(Problem(time=0.0, source="trace", message=message) for message in told),
    )
    return profile, tuple(_traced(number, each) for number, each in ordered)


def _numbers(found: Sequence[Analysis]) -> tuple[list[int], list[str]]:
    """Ranks: those that the traces tell, if no two tell the same; else their order."""
    told = [each.rank for each in found]
    if None not in told and len(set(told)) == len(told):
        return [number for number in told if number is not None], []
    if len(found) == 1:
        return [0], []
    note = "These traces do not say, each its own, of which ranks they are: they are numbered as they were given."
    return list(range(len(found))), [note]


def _rank(number: int, found: Analysis, files: int) -> Rank:
    return Rank(
        process=Process(pid=found.window.pid, rank=number, world_size=max(found.world_size or 1, files), started=0.0),
        steps=found.steps,
        windows=(found.window,),
        kernels=found.kernels,
        operators=found.operators,
        devices=tuple(
            DeviceFact(id=each.number, name=each.name, capability=each.capability, memory_total=each.memory)
            for each in found.devices
        ),
    )


def _traced(number: int, found: Analysis) -> Traced:
    time = found.breakdown
    first = next(iter(found.queues), None)
    calls = found.launches
    return Traced(
        rank=number,
        file=found.path.name,
        events=found.events,
        steps=found.window.steps if found.marked else None,
        seconds=found.window.duration,
        parts=_parts(time) if time else (),
        idle=time.idle / time.whole if time and time.whole else None,
        overlap=time.overlap / time.communication if time and time.communication else None,
        queue=Waiting(mean=first.mean, most=first.most, empty=first.empty) if first else None,
        launches=Launching(
            calls=calls.calls,
            median=calls.call_median * 1e-9,
            p99=calls.call_p99 * 1e-9,
            slow=calls.slow_calls,
            delay=calls.delay_median * 1e-9,
            shorter=calls.shorter_than_call / calls.calls,
        )
        if calls and calls.calls
        else None,
        critical=_critical(found.critical or {}),
        kinds=_kinds(found.kernels),
        tensor_cores=_share(found.kernels, lambda kernel: kernel.tensor_cores is True) if time else None,
        exchanges=tuple(
            Exchange(
                name=each.key.name,
                group=each.key.group,
                ranks=each.key.ranks,
                dtype=each.key.dtype,
                calls=len(each.durations),
                seconds=each.total * 1e-9,
                exposed=each.exposed * 1e-9,
                waited=None if each.waited is None else each.waited * 1e-9,
                bytes=each.bytes,
                bandwidth=each.bandwidth,
            )
            for each in found.collectives
        ),
    )


def _parts(time: Breakdown) -> tuple[Share, ...]:
    if not time.whole:
        return ()
    return tuple(
        Share(name, label, meaning, colour, getattr(time, name) * 1e-9, getattr(time, name) / time.whole)
        for name, (colour, label, meaning) in PARTS.items()
    )


def _kinds(kernels: Sequence[Kernel]) -> tuple[Share, ...]:
    kinds = {kernel.kind for kernel in kernels}
    shares = [
        Share(kind, kind, "", "", sum(k.total for k in kernels if k.kind == kind), _share(kernels, _is(kind)))
        for kind in sorted(kinds)
    ]
    return tuple(sorted(shares, key=lambda share: -share.seconds))


def _is(kind: str) -> Callable[[Kernel], bool]:
    return lambda kernel: kernel.kind == kind


def _share(kernels: Sequence[Kernel], wanted: Callable[[Kernel], bool]) -> float:
    whole = sum(kernel.total for kernel in kernels)
    return sum(kernel.total for kernel in kernels if wanted(kernel)) / whole if whole else 0.0


def _critical(seconds: Mapping[Part, float]) -> tuple[Share, ...]:
    """Most time first."""
    whole = sum(seconds.values())
    shares = [Share(name, LINKS[name], "", "", each, each / whole) for name, each in seconds.items() if each > 0]
    return tuple(sorted(shares, key=lambda share: -share.seconds))
