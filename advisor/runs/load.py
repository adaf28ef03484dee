"""Load a run folder as a `Profile`."""

import gc
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from advisor.runs.nodes import clocks, ended, host_samples, in_order, numbered, on_one_clock, remarks, with_gpus
from advisor.runs.profile import Profile, Rank, bare_uuid
from profiler import schema, store
from profiler.errors import ProfilerError
from profiler.grouping import grouped
from profiler.store import Tables

T = TypeVar("T")


FEW_RANKS = 16
"""Largest number of ranks that are read in full; a node has no more."""

MOST_STEPS = 2**17
"""Maximum step rows that are read for all non-primary ranks together: 100 MB."""

MOST_SAMPLES = 2**15
"""Maximum GPU sample rows that are read for all ranks together."""

NEWEST = 1.0
"""Final seconds of a run in progress whose samples are all read: `watch` shows the current state."""

OWN_TABLES = ("steps", "memory_samples", "windows", "kernels", "operators", "syncs", "stacks")
"""Tables from which a rank gets only the rows with its own PID; stacks of its workers also have that PID."""

_HINTS = [(name, hint) for name, hint in get_type_hints(Rank).items() if {*get_args(hint)} & {*schema.FACTS.values()}]
SEVERAL_FACTS: dict[str, type] = {name: get_args(hint)[0] for name, hint in _HINTS if get_origin(hint) is tuple}
"""Class of the facts in each field of a rank that holds several."""
SINGLE_FACTS: dict[str, type] = {name: get_args(hint)[0] for name, hint in _HINTS if get_origin(hint) is not tuple}
"""Class of the fact in each field of a rank that holds one or None."""


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause Python's garbage collector, whose repeated scans of the rows take a third of the loading time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_without_collector()
def load(folder: Path) -> Profile:
    """Return the run recorded in `folder`, however it ended.

    If one node's file cannot be read but another's can, the profile reports a problem.

    Raises:
        ProfilerError: no node's file can be read, or none contains the command.
    """
    paths = store.find(folder)
    conditions, stretches = _thinned(paths)
    nodes, problems = _nodes(paths, conditions)
    nodes = numbered(in_order(nodes))
    node_clocks = clocks(nodes)
    problems += remarks(nodes, node_clocks)
    nodes = [on_one_clock(node, clock) for node, clock in zip(nodes, node_clocks, strict=True)]
    recorded_ranks = [
        replace(rank, clock=clock, host=node.runs[-1].host if node.runs else None)
        for node, clock in zip(nodes, node_clocks, strict=True)
        for rank in ranks_of(node)
    ]
    stepped_ranks = _side_by_side([rank for rank in recorded_ranks if rank.steps])
    runs = tuple(run for node in nodes for run in node.runs)
    if len(nodes) > 1 and (final_run := ended(nodes)) is not None:
        runs = (
            replace(runs[0], outcome=final_run.outcome, exit_status=final_run.exit_status, signal=final_run.signal),
            *runs[1:],
        )
    if not runs:
        raise ProfilerError(
            f"The recording in {folder} is damaged: it does not contain the command.", "Record the run again."
        )
    return Profile(
        runs=runs,
        ranks=tuple(sorted(stepped_ranks or recorded_ranks, key=lambda rank: (rank.process.rank, -rank.started))),
        gpus=tuple(gpu for node in nodes for gpu in node.gpus),
        gpu_samples=tuple(sample for node in nodes for sample in node.gpu_samples),
        host_samples=host_samples(nodes),
        stretches=stretches,
        problems=(*(problem for node in nodes for problem in _that_matter(node, stepped_ranks)), *problems),
    )


def _side_by_side(ranks: Sequence[Rank]) -> list[Rank]:
    """Assign rank numbers to processes that trained at the same time without a launcher's numbers.

    This happens with torch.multiprocessing; each such process is a rank of the run. A process that began after another
    one had ended is a restart and keeps its number.
    """
    numbers = {rank.process.rank for rank in ranks}
    end_times: dict[int, float] = {}
    result = []
    for rank in sorted(ranks, key=lambda rank: (rank.process.rank, rank.started)):
        process = rank.process
        if process.world_size == 1 and rank.started < end_times.get(process.rank, -math.inf):
            number = max(numbers) + 1
            numbers.add(number)
            process = replace(process, rank=number, local_rank=number)
        end = math.inf if process.ended is None else rank.clock(process.ended)
        end_times[process.rank] = max(end, end_times.get(process.rank, -math.inf))
        result.append(replace(rank, process=process))
    return result


def _that_matter(node: Tables, stepped: Sequence[Rank]) -> Iterable[schema.Problem]:
    """Return the problems, without "steps" problems of processes that made no step if others did.

    Such a process may evaluate the model that the others train.
    """
    pids = {step.pid for step in node.steps}
    return (problem for problem in node.problems if problem.source != "steps" or not stepped or problem.pid in pids)


def _nodes(paths: list[Path], thinned: Sequence[store.Conditions | None]) -> tuple[list[Tables], list[schema.Problem]]:
    nodes: list[Tables] = []
    failures: list[ProfilerError] = []
    for result in _each(store.read, paths, thinned):
        if isinstance(result, ProfilerError):
            failures.append(result)
        else:
            nodes.append(_seen_by_torch(result))
    if not nodes:
        raise failures[0]
    return nodes, [schema.Problem(time=0.0, source="store", message=str(failure)) for failure in failures]


def _each(function: Callable[..., T], *arguments: Sequence[object]) -> list[T | ProfilerError]:
    """Call the function for each node, several at a time. SQLite releases the GIL while it searches."""

    def attempt(*given: object) -> T | ProfilerError:
        try:
            return function(*given)
        except ProfilerError as error:
            return error

    if len(arguments[0]) == 1:
        return list(map(attempt, *arguments))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(attempt, *arguments))


def _thinned(paths: Sequence[Path]) -> tuple[list[store.Conditions | None], store.Stretches | None]:
    """Return the conditions for reading each node, and the stretches of steps.

    All are None if there are so few ranks that they are read in full.
    """
    surveys = [store.Survey() if isinstance(survey, ProfilerError) else survey for survey in _each(store.survey, paths)]
    heads = [process for survey in surveys for process in survey.processes if process.role == "rank" and process.events]
    if len(heads) <= FEW_RANKS:
        return [None] * len(paths), None
    primary = min(process.rank for process in heads)
    steps = _stretches([survey.steps for survey in surveys], len(heads), MOST_STEPS)
    samples = _stretches([survey.gpu_samples for survey in surveys], len(heads), MOST_SAMPLES)
    conditions: list[store.Conditions | None] = [
        store.thin(_working_for(primary, survey.processes), steps, samples, since=survey.gpu_samples.end - NEWEST)
        for survey in surveys
    ]
    return conditions, steps


def _working_for(rank: int, processes: Sequence[schema.Process]) -> set[int]:
    heads = {process.pid: process.rank for process in processes if process.role == "rank" and process.events}
    return {pid for pid, head in store.owners(processes, heads.keys()).items() if heads[head] == rank}


def _stretches(tables: Sequence[store.Extent], ranks: int, most: int) -> store.Stretches:
    """Return stretches that cover at most `most` rows of all nodes together."""
    rows, end = max(1, sum(table.rows for table in tables)), max(table.end for table in tables)
    return store.Stretches.over(end, min(1.0, most / rows), apart=end * ranks / rows)


def _seen_by_torch(node: Tables) -> Tables:
    """Drop the GPUs that no process saw if a node has different GPUs, because the recorder samples all of them."""
    if len({gpu.name for gpu in node.gpus}) < 2:
        return node
    facts = (store.decode_fact(fact) for fact in node.facts if fact.kind == "device")
    uuids = {bare_uuid(fact.uuid) for fact in facts if isinstance(fact, schema.DeviceFact) and fact.uuid}
    indices = {gpu.index: gpu.index for gpu in node.gpus if bare_uuid(gpu.uuid) in uuids}
    return with_gpus(node, indices) if indices else node


def ranks_of(node: Tables) -> list[Rank]:
    """Return the training processes of a node, with what was recorded of each and of its workers."""
    heads = store.ranks(node)
    owner_of = store.owners(node.processes, {head.pid for head in heads})
    rows: dict[str, Any] = {name: _by_process(getattr(node, name)) for name in OWN_TABLES}
    rows["batches"] = _by_process(sorted(node.batches, key=lambda batch: batch.start), owner_of)
    rows["sketches"] = _by_process(node.sketches, owner_of)
    rows["workers"] = _by_process((process for process in node.processes if process.role == "worker"), owner_of)
    facts = _by_process(node.facts)
    return [
        _rank(head, {name: of_process.get(head.pid, ()) for name, of_process in rows.items()}, facts) for head in heads
    ]


def _by_process(rows: Iterable[Any], owners: Mapping[int, int] = MappingProxyType({})) -> dict[int, tuple[Any, ...]]:
    """Return the rows by process, or by the rank that it works for. Each table is scanned once for all ranks."""
    return {pid: tuple(group) for pid, group in grouped(rows, lambda row: owners.get(row.pid, row.pid)).items()}


def _rank(process: schema.Process, rows: dict[str, Any], facts: Mapping[int, Sequence[schema.Fact]]) -> Rank:
    own_facts = _latest(facts.get(process.pid, ()))
    fields: dict[str, Any] = {name: tuple(_of(kind, own_facts)) for name, kind in SEVERAL_FACTS.items()}
    fields |= {name: next(_of(kind, own_facts), None) for name, kind in SINGLE_FACTS.items()}
    workers = sorted(worker.pid for worker in rows["workers"])
    fields["worker_regions"] = tuple(
        region for pid in workers for region in _of(schema.RegionFact, _latest(facts.get(pid, ())))
    )
    return Rank(process=process, **rows, **fields)


def _latest(facts: Iterable[schema.Fact]) -> list[object]:
    """Return the latest version of each fact, in order of first occurrence."""
    latest: dict[tuple[str, object], object] = {}
    for fact in sorted(facts, key=lambda fact: fact.time):
        if (decoded := store.decode_fact(fact)) is not None:
            latest[fact.kind, getattr(decoded, "id", None)] = decoded
    return list(latest.values())


def _of(kind: type[T], facts: Iterable[object]) -> Iterator[T]:
    return (fact for fact in facts if isinstance(fact, kind))
