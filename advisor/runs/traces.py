"""Read traces of torch.profiler, one file per rank, as a profile, and summarize what each trace shows."""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from advisor.runs.profile import Profile, Rank
from advisor.units import count
from profiler.errors import ProfilerError
from profiler.grouping import totals
from profiler.importers.analysis import Analysis
from profiler.importers.collectives import exchanges
from profiler.importers.several import analyze_all
from profiler.schema import Exchange, Problem, Process, TraceFact

PARTS = {
    "compute": ("forward", "Computing", "A kernel computed."),
    "communication_exposed": ("communication", "Communication", "A collective ran while nothing computed."),
    "memory_exposed": ("h2d", "Moving memory", "Only a copy or a fill ran."),
    "idle_data": ("data_wait", "Idle: host fetches a batch", "The GPU was idle while the host was in next(loader)."),
    "idle_sync": (
        "sync",
        "Idle: after the host waited for the GPU",
        "The host waited for the GPU (.item(), .cpu(), a print), so the GPU had no queued work afterwards.",
    ),
    "idle_launch": ("loader_overhead", "Idle: launch came late", "The host launched the next kernel too late."),
    "idle_queued": (
        "other",
        "Idle: queued",
        "The next work was launched in time but waited for another stream, or for work that the trace does not "
        "show, such as work of another process on this GPU.",
    ),
}
"""The color, label and meaning of each part of a breakdown."""

LINKS = {
    "compute": "computing",
    "communication": "communication",
    "memory": "moving memory",
    "gpu_gap": "between kernels that were queued",
    "launch": "launch latency",
    "data": "the host fetching a batch",
    "host": "the host launching work",
    "sync": "the host noticing that the GPU was done",
}

LONG_GAP = 0.01
"""Minimum seconds of a gap reported as most of the idle time: shorter ones do not indicate a program's start."""

_BY_THEIR_NAME = re.compile(r"\.pt\.trace\.json(\.gz)?$")
_OF_A_WORKER = re.compile(r"(.+)\.(\d{10,})\.pt\.trace\.json(?:\.gz)?$")
"""The name that tensorboard_trace_handler gives: the process, and when its window was saved."""

_HEAD = 1 << 20
"""Bytes of a file within which a trace's events begin; a few hundred bytes per GPU precede them."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the analyzed time, or of a step's critical path."""

    name: str
    label: str
    seconds: float
    share: float
    color: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """The results of one trace, whether imported or our own window. Missing values are None or empty."""

    rank: int
    fact: TraceFact
    parts: tuple[Share, ...]
    idle: float | None
    """Share of the time that the GPU is idle."""
    single_gap: float | None
    """Seconds of the one gap that is most of the idle time; None if there is none."""
    critical: tuple[Share, ...]
    """Critical path of the step of median length."""
    kinds: tuple[Share, ...]
    """Kinds of kernels by self time, or of operators on a CPU; most first."""
    tensor_cores: float | None
    """Share of kernel time in kernels known to use tensor cores; None without a GPU."""


def in_folder(folder: Path) -> tuple[tuple[Path, ...], str]:
    """Return the last trace of each process in a folder, and a note about the others.

    Raises:
        ProfilerError: the folder cannot be read, or holds no trace.
    """
    try:
        candidates = [path for path in sorted(folder.iterdir()) if path.name.endswith((".json", ".json.gz"))]
    except OSError as error:
        raise ProfilerError(
            f"The folder {folder} cannot be read: {error.strerror or error}.",
            "Check your read permission, or name another folder.",
        ) from error
    files = [path for path in candidates if _is_trace(path)]
    if not files:
        raise ProfilerError(
            f"{folder} contains neither a recording nor traces.",
            "Give the folder of a run, or a folder with the *.pt.trace.json files of torch.profiler's "
            "tensorboard_trace_handler.",
        )
    last: dict[str, tuple[int, Path]] = {}
    for path in files:
        match = _OF_A_WORKER.match(path.name)
        process, saved_at = (match[1], int(match[2])) if match else (path.name, 0)
        last[process] = max(last.get(process, (-1, path)), (saved_at, path))
    older_count = len(files) - len(last)
    note = f"Only the last trace of each process is used; {folder} contains {count(older_count, 'earlier one')}."
    return tuple(path for _, path in last.values()), note if older_count else ""


def _is_trace(path: Path) -> bool:
    """Return whether a file is a trace, by its name or, since other JSON may lie there, by its beginning.

    An unreadable file counts as one, so that it is reported later.
    """
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


def load(paths: Sequence[Path]) -> Profile:
    """Read the traces at `paths`, by rank. One that cannot be read becomes a problem of the profile if another can be.

    Raises:
        ProfilerError: none of them can be read.
    """
    results = analyze_all(paths)
    analyses = [analysis for analysis in results if isinstance(analysis, Analysis)]
    failures = [analysis for analysis in results if isinstance(analysis, ProfilerError)]
    if not analyses:
        raise failures[0]
    numbers, notes = _numbers(analyses)
    ordered = sorted(zip(numbers, analyses, strict=True), key=lambda pair: pair[0])
    exchanges_by_rank = exchanges([analysis.collectives for _, analysis in ordered])
    messages = [
        *(str(failure) for failure in failures),
        *notes,
        *(problem for _, analysis in ordered for problem in analysis.problems),
    ]
    return Profile(
        runs=(),
        ranks=tuple(
            _rank(number, analysis, len(analyses), rank_exchanges)
            for (number, analysis), rank_exchanges in zip(ordered, exchanges_by_rank, strict=True)
        ),
        problems=tuple(Problem(time=0.0, source="trace", message=message) for message in messages),
    )


def _numbers(found: Sequence[Analysis]) -> tuple[list[int], list[str]]:
    """Return the ranks that the traces contain, or their order if two have the same rank or one has none.

    If there are several traces, a note explains that they are numbered in order.
    """
    ranks = [analysis.rank for analysis in found]
    if None not in ranks and len(set(ranks)) == len(ranks):
        return [number for number in ranks if number is not None], []
    if len(found) == 1:
        return [0], []
    note = "The traces do not contain their rank numbers, so they are numbered in the order given."
    return list(range(len(found))), [note]


def _rank(number: int, found: Analysis, files: int, known: tuple[Exchange, ...]) -> Rank:
    return Rank(
        process=Process(pid=found.window.pid, rank=number, world_size=max(found.world_size or 1, files), started=0.0),
        steps=found.steps,
        windows=(found.window,),
        kernels=found.kernels,
        operators=found.operators,
        syncs=found.syncs,
        traces=(replace(found.fact, exchanges=known),),
        devices=found.devices,
    )


def traced(rank: Rank) -> TraceSummary | None:
    """Return what the trace of a rank shows; None if it has none.

    If there are several windows, it is the longest one that did not record shapes; if all did, the longest one.
    """
    if not rank.traces:
        return None
    fact = max(rank.traces, key=lambda candidate: (not candidate.shapes, candidate.steps or 0, candidate.id))
    kernels = [kernel for kernel in rank.kernels if kernel.window == fact.id]
    kinds = dict(sorted(totals(kernels, attrgetter("kind")).items()))
    tensor_seconds = sum(kernel.total for kernel in kernels if kernel.tensor_cores)
    idle_seconds = sum(seconds for name, seconds in fact.parts.items() if name.startswith("idle_"))
    whole = sum(fact.parts.values())
    return TraceSummary(
        rank=rank.process.rank,
        fact=fact,
        parts=_parts(fact.parts, whole) if whole else (),
        idle=idle_seconds / whole if whole else None,
        single_gap=fact.longest_idle if (fact.longest_idle or 0.0) >= max(LONG_GAP, idle_seconds / 2) else None,
        critical=_largest_first(fact.critical, LINKS),
        kinds=_largest_first(kinds, {}),
        tensor_cores=tensor_seconds / (sum(kinds.values()) or 1.0) if fact.parts else None,
    )


def _parts(seconds: Mapping[str, float], whole: float) -> tuple[Share, ...]:
    return tuple(
        Share(name, label, seconds.get(name, 0.0), seconds.get(name, 0.0) / whole, color, meaning)
        for name, (color, label, meaning) in PARTS.items()
    )


def _largest_first(seconds: Mapping[str, float], labels: Mapping[str, str]) -> tuple[Share, ...]:
    positive = {name: duration for name, duration in seconds.items() if duration > 0}
    whole = sum(positive.values())
    shares = (Share(name, labels.get(name, name), duration, duration / whole) for name, duration in positive.items())
    return tuple(sorted(shares, key=lambda share: -share.seconds))
