"""Who trained, and who worked for whom, among the processes of a node."""

from __future__ import annotations

from collections.abc import Sequence, Set

from profiler.schema import Process
from profiler.store.tables import Tables


def ranks(node: Tables) -> list[Process]:
    """The training processes: those that made a step, or all if none did."""
    stepped = {step.pid for step in node.steps}
    found = [process for process in node.processes if process.role == "rank"]
    return [process for process in found if process.pid in stepped] or found


def owners(processes: Sequence[Process], heads: Set[int]) -> dict[int, int]:
    """Whom each process works for: a rank, one of `heads`, for itself, a worker for the nearest of them above it.

    A forkserver may lie between, seen or not. A worker whose parents lead nowhere is that of the only rank there is, or
    of the only one with its number.
    """
    parents = {process.pid: process.parent for process in processes}
    found = {head: head for head in heads}
    for worker in processes:
        if worker.role == "worker":
            pid, seen = worker.parent, {worker.pid}
            while pid is not None and pid not in heads and pid not in seen:
                seen.add(pid)
                pid = parents.get(pid)
            if pid is not None and pid in heads:
                found[worker.pid] = pid
                continue
            likely = heads if len(heads) == 1 else heads & _of_its_number(worker, processes)
            if len(likely) == 1:
                (found[worker.pid],) = likely
    return found


def _of_its_number(worker: Process, processes: Sequence[Process]) -> Set[int]:
    """Ranks that a launcher has given the same one; without its word a worker has the number 0, of a world of 1."""
    place = worker.rank, worker.world_size
    return {each.pid for each in processes if (each.rank, each.world_size) == place and each.world_size > 1}
