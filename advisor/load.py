"""A run folder as a `Profile`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

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
    ThreadsFact,
    TrialFact,
)
from profiler.store import Tables, decode_fact, find, read

T = TypeVar("T")


def load(folder: Path) -> Profile:
    """The run recorded in `folder`, whatever it ended in.

    A node whose file cannot be read is a problem of the profile as long as there is another. Raises ProfilerError if
    there is none, or if no file says what was run.
    """
    nodes, problems = _nodes(find(folder))
    ranks = [rank for node in nodes for rank in _ranks(node)]
    stepped = [rank for rank in ranks if rank.steps]
    runs = tuple(run for node in nodes for run in node.runs)
    if not runs:
        raise ProfilerError(f"{folder} does not say what was run: its recording is torn.", "Record the run again.")
    return Profile(
        runs=runs,
        ranks=tuple(sorted(stepped or ranks, key=lambda rank: (rank.process.rank, rank.process.started))),
        gpus=tuple(gpu for node in nodes for gpu in node.gpus),
        gpu_samples=tuple(sample for node in nodes for sample in node.gpu_samples),
        host_samples=tuple(sample for node in nodes for sample in node.host_samples),
        problems=(*(problem for node in nodes for problem in node.problems), *problems),
    )


def _nodes(paths: list[Path]) -> tuple[list[Tables], list[Problem]]:
    nodes: list[Tables] = []
    failures: list[ProfilerError] = []
    for path in paths:
        try:
            node = read(path)
        except ProfilerError as error:
            failures.append(error)
        else:
            nodes.append(_renumber(node, sum(len(other.gpus) for other in nodes)))
    if not nodes:
        raise failures[0]
    return nodes, [Problem(time=0.0, source="store", message=str(failure)) for failure in failures]


def _renumber(node: Tables, first: int) -> Tables:
    """NVML counts the GPUs of every node from 0; in a profile each has a number of its own."""
    if not first:
        return node
    numbers = {gpu.index: first + position for position, gpu in enumerate(node.gpus)}
    return replace(
        node,
        gpus=tuple(replace(gpu, index=numbers[gpu.index]) for gpu in node.gpus),
        gpu_samples=tuple(
            replace(sample, gpu=numbers[sample.gpu]) for sample in node.gpu_samples if sample.gpu in numbers
        ),
    )


def _ranks(node: Tables) -> list[Rank]:
    """The training processes of a node: all its ranks that made a step, or all its ranks if none did."""
    stepped = {step.pid for step in node.steps}
    ranks = [process for process in node.processes if process.role == "rank"]
    heads = [process for process in ranks if process.pid in stepped] or ranks
    owners = _owners(node.processes, {head.pid for head in heads})
    return [_rank(head, node, {pid for pid, owner in owners.items() if owner == head.pid}) for head in heads]


def _owners(processes: Sequence[Process], heads: set[int]) -> dict[int, int]:
    """Whom each process works for: a rank for itself, a worker for the nearest rank above it.

    A forkserver may lie between, seen or not; where a worker's parents lead nowhere, the only rank must be its own.
    """
    parents = {process.pid: process.parent for process in processes}
    owners = {head: head for head in heads}
    for process in processes:
        if process.role == "worker":
            pid, seen = process.parent, {process.pid}
            while pid is not None and pid not in heads and pid not in seen:
                seen.add(pid)
                pid = parents.get(pid)
            if pid is not None and pid in heads:
                owners[process.pid] = pid
            elif len(heads) == 1:
                (owners[process.pid],) = heads
    return owners


def _rank(process: Process, node: Tables, pids: set[int]) -> Rank:
    facts = _latest(fact for fact in node.facts if fact.pid == process.pid)
    flags, scalers, outputs = _of(FlagsFact, facts), _of(ScalerFact, facts), _of(OutputFact, facts)
    return Rank(
        process=process,
        workers=tuple(worker for worker in node.processes if worker.pid in pids and worker.role == "worker"),
        steps=tuple(step for step in node.steps if step.pid == process.pid),
        batches=tuple(sorted((batch for batch in node.batches if batch.pid in pids), key=lambda batch: batch.start)),
        memory=tuple(sample for sample in node.memory_samples if sample.pid == process.pid),
        windows=tuple(window for window in node.windows if window.pid == process.pid),
        kernels=tuple(kernel for kernel in node.kernels if kernel.pid == process.pid),
        operators=tuple(operator for operator in node.operators if operator.pid == process.pid),
        sketches=tuple(sketch for sketch in node.sketches if sketch.pid in pids),
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
            for pid in sorted(pids - {process.pid})
            for region in _of(RegionFact, _latest(fact for fact in node.facts if fact.pid == pid))
        ),
        ddp=_of(DdpFact, facts),
        paddings=_of(PaddingFact, facts),
        matmul=next(iter(_of(MatmulFact, facts)), None),
        threads=next(iter(_of(ThreadsFact, facts)), None),
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
