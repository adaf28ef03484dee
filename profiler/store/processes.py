"""The training processes of a node, and the workers of each."""

from collections.abc import Sequence, Set

from profiler.schema import Process
from profiler.store.tables import Tables


def ranks(node: Tables) -> list[Process]:
    """Return the training processes: those that made a step, or all ranks if none did."""
    stepped = {step.pid for step in node.steps}
    found = [process for process in node.processes if process.role == "rank"]
    return [process for process in found if process.pid in stepped] or found


def owners(processes: Sequence[Process], heads: Set[int]) -> dict[int, int]:
    """Return the rank that each process works for, by PID.

    A rank, one of `heads`, works for itself; a worker for its nearest ancestor among them. A forkserver may be in
    between, recorded or not. A worker without such an ancestor belongs to the only rank, or to the only one with its
    rank number.
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
            # A launcher sets both for its ranks; without one a worker has rank 0 and world size 1, which mean nothing.
            place = worker.rank, worker.world_size
            numbered = {one.pid for one in processes if (one.rank, one.world_size) == place and one.world_size > 1}
            likely = heads if len(heads) == 1 else heads & numbered
            if len(likely) == 1:
                (found[worker.pid],) = likely
    return found
