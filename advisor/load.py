"""A run folder as a `Profile`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from advisor.nodes import clocks, host_samples, in_order, numbered, on_one_clock, remarks
from advisor.profile import Profile, Rank
from profiler.errors import ProfilerError
from profiler.schema import (
    CallFact,
    DdpFact,
    DeviceFact,
    ErrorFact,
    Fact,
    FlagsFact,
    LoaderFact,
    MatmulFact,
    MemoryFact,
    ModelFact,
    OptimizerFact,
    OutputFact,
    PaddingFact,
    Problem,
    Process,
    RegionFact,
    ScalerFact,
    SchedulingFact,
    ThreadsFact,
    TrialFact,
)
from profiler.store import (
    Extent,
    Stretches,
    Survey,
    Tables,
    Thin,
    decode_fact,
    find,
    owners,
    ranks,
    read,
    survey,
    with_columns,
)

T = TypeVar("T")


class _OfProcess(Protocol):
    @property
    def pid(self) -> int:
        """Whose row it is."""


R = TypeVar("R", bound=_OfProcess)

FEW_RANKS = 16
"""As many are read in full: a node has no more."""

MOST_STEPS = 2**17
"""Rows of steps that are read of the ranks beside the primary, together: 100 MB."""

MOST_SAMPLES = 2**15
"""Rows of samples of the GPUs, together."""

NEWEST = 1.0
"""Seconds that samples of a run which goes on are all read of: `watch` shows what is now."""


@contextmanager
def _without_collector() -> Iterator[None]:
    """Python's collector would look through all rows again and again while they are made, a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_without_collector()
def load(folder: Path) -> Profile:
    """The run recorded in `folder`, whatever it ended in.

    A node whose file cannot be read is a problem of the profile as long as there is another. Raises ProfilerError if
    there is none, or if no file says what was run.
    """
    paths = find(folder)
    thinned = _thinned(paths)
    nodes, problems = _nodes(paths, thinned)
    nodes = numbered(in_order(nodes))
    compared = clocks(nodes)
    problems += remarks(nodes, compared)
    nodes = [on_one_clock(node, clock) for node, clock in zip(nodes, compared, strict=True)]
    recorded = [
        replace(rank, clock=clock, host=node.runs[-1].host if node.runs else None)
        for node, clock in zip(nodes, compared, strict=True)
        for rank in _ranks(node)
    ]
    stepped = [rank for rank in recorded if rank.steps]
    runs = tuple(run for node in nodes for run in node.runs)
    if not runs:
        raise ProfilerError(f"{folder} does not say what was run: its recording is torn.", "Record the run again.")
    return Profile(
        runs=runs,
        ranks=tuple(sorted(stepped or recorded, key=lambda rank: (rank.process.rank, rank.process.started))),
        gpus=tuple(gpu for node in nodes for gpu in node.gpus),
        gpu_samples=tuple(sample for node in nodes for sample in node.gpu_samples),
        host_samples=host_samples(nodes),
        stretches=thinned[0].steps if thinned else None,
        problems=(*(problem for node in nodes for problem in node.problems), *problems),
    )


def _nodes(paths: list[Path], thinned: Sequence[Thin]) -> tuple[list[Tables], list[Problem]]:
    nodes: list[Tables] = []
    failures: list[ProfilerError] = []
    for found in _each(read, paths, thinned or [None] * len(paths)):
        if isinstance(found, ProfilerError):
            failures.append(found)
        else:
            nodes.append(_renumber(found, sum(len(other.gpus) for other in nodes)))
    if not nodes:
        raise failures[0]
    return nodes, [Problem(time=0.0, source="store", message=str(failure)) for failure in failures]


def _each(function: Callable[..., T], *arguments: Sequence[object]) -> list[T | ProfilerError]:
    """The function of each node, several at a time: SQLite lets others run while it searches."""

    def attempt(*given: object) -> T | ProfilerError:
        try:
            return function(*given)
        except ProfilerError as error:
            return error

    if len(arguments[0]) == 1:
        return list(map(attempt, *arguments))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(attempt, *arguments))


def _thinned(paths: Sequence[Path]) -> list[Thin]:
    """How little of each node is read; nothing where a run of few ranks is read in full."""
    surveys = [Survey() if isinstance(one, ProfilerError) else one for one in _each(survey, paths)]
    heads = [process for one in surveys for process in one.processes if process.role == "rank" and process.events]
    if len(heads) <= FEW_RANKS:
        return []
    primary = min(process.rank for process in heads)
    steps = _stretches([one.steps for one in surveys], len(heads), MOST_STEPS)
    samples = _stretches([one.gpu_samples for one in surveys], len(heads), MOST_SAMPLES)
    return [
        Thin(
            whole=_working_for(primary, one.processes),
            steps=steps,
            samples=samples,
            since=one.gpu_samples.end - NEWEST,
        )
        for one in surveys
    ]


def _working_for(rank: int, processes: Sequence[Process]) -> set[int]:
    """The processes that a rank consists of."""
    heads = {process.pid: process.rank for process in processes if process.role == "rank" and process.events}
    return {pid for pid, head in owners(processes, heads.keys()).items() if heads[head] == rank}


def _stretches(tables: Sequence[Extent], ranks: int, most: int) -> Stretches:
    """So long that no more rows than that are read, of all nodes together."""
    rows, end = max(1, sum(table.rows for table in tables)), max(table.end for table in tables)
    return Stretches.over(end, min(1.0, most / rows), apart=end * ranks / rows)


def _renumber(node: Tables, first: int) -> Tables:
    """NVML counts the GPUs of every node from 0; in a profile each has a number of its own."""
    if not first:
        return node
    numbers = {gpu.index: first + position for position, gpu in enumerate(node.gpus)}
    known = [sample for sample in node.gpu_samples if sample.gpu in numbers]
    return replace(
        node,
        gpus=tuple(replace(gpu, index=numbers[gpu.index]) for gpu in node.gpus),
        gpu_samples=tuple(with_columns(known, gpu=[numbers[sample.gpu] for sample in known])),
    )


def _ranks(node: Tables) -> list[Rank]:
    """The training processes of a node."""
    heads = ranks(node)
    owner_of = owners(node.processes, {head.pid for head in heads})
    owned: dict[int, list[int]] = {}
    for pid, owner in owner_of.items():
        owned.setdefault(owner, []).append(pid)
    rows = _Rows(node, owner_of)
    return [_rank(head, node, rows, owned[head.pid]) for head in heads]


class _Rows:
    """A node's rows by process, in two tables by the rank it works for: each is looked at once for all ranks."""

    def __init__(self, node: Tables, owners: Mapping[int, int]) -> None:
        self.batches = _by_process(node.batches, owners)
        self.facts = _by_process(node.facts)
        self.kernels = _by_process(node.kernels)
        self.memory = _by_process(node.memory_samples)
        self.operators = _by_process(node.operators)
        self.sketches = _by_process(node.sketches, owners)
        self.steps = _by_process(node.steps)
        self.windows = _by_process(node.windows)


def _by_process(rows: Iterable[R], owners: Mapping[int, int] | None = None) -> dict[int, tuple[R, ...]]:
    found: dict[int, list[R]] = {}
    for row in rows:
        found.setdefault(row.pid if owners is None else owners.get(row.pid, row.pid), []).append(row)
    return {pid: tuple(each) for pid, each in found.items()}


def _rank(process: Process, node: Tables, rows: _Rows, pids: Sequence[int]) -> Rank:
    """`pids` are its own and those of the processes that work for it."""
    facts = _latest(rows.facts.get(process.pid, ()))
    flags, scalers, outputs = _of(FlagsFact, facts), _of(ScalerFact, facts), _of(OutputFact, facts)
    return Rank(
        process=process,
        workers=tuple(worker for worker in node.processes if worker.pid in pids and worker.role == "worker"),
        steps=rows.steps.get(process.pid, ()),
        batches=tuple(sorted(rows.batches.get(process.pid, ()), key=lambda batch: batch.start)),
        memory=rows.memory.get(process.pid, ()),
        windows=rows.windows.get(process.pid, ()),
        kernels=rows.kernels.get(process.pid, ()),
        operators=rows.operators.get(process.pid, ()),
        sketches=rows.sketches.get(process.pid, ()),
        loaders=_of(LoaderFact, facts),
        models=_of(ModelFact, facts),
        optimizers=_of(OptimizerFact, facts),
        calls=_of(CallFact, facts),
        flags=flags[-1] if flags else None,
        devices=_of(DeviceFact, facts),
        memory_peaks=_of(MemoryFact, facts),
        scaler=scalers[-1] if scalers else None,
        trial=next(iter(_of(TrialFact, facts)), None),
        error=next(iter(_of(ErrorFact, facts)), None),
        output=outputs[-1] if outputs else None,
        regions=_of(RegionFact, facts),
        worker_regions=tuple(
            region
            for pid in sorted(pids)
            if pid != process.pid
            for region in _of(RegionFact, _latest(rows.facts.get(pid, ())))
        ),
        ddp=_of(DdpFact, facts),
        paddings=_of(PaddingFact, facts),
        matmul=next(iter(_of(MatmulFact, facts)), None),
        threads=next(iter(_of(ThreadsFact, facts)), None),
        scheduling=next(iter(_of(SchedulingFact, facts)), None),
    )


def _latest(facts: Iterable[Fact]) -> list[object]:
    """Each fact as it was seen last, in the order of first sight."""
    latest: dict[tuple[str, object], object] = {}
    for fact in sorted(facts, key=lambda fact: fact.time):
        if (decoded := decode_fact(fact)) is not None:
            latest[fact.kind, getattr(decoded, "id", None)] = decoded
    return list(latest.values())


def _of(kind: type[T], facts: list[object]) -> tuple[T, ...]:
    return tuple(fact for fact in facts if isinstance(fact, kind))
