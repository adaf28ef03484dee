"""The training processes of a node, and the workers of each."""

from collections.abc import Sequence, Set

from profiler.schema import Process
from profiler.store.tables import Tables


def ranks(node: Tables) -> list[Process]:
    """Return the training processes: those that made a step, or all ranks if none did."""
    stepped_pids = {step.pid for step in node.steps}
    rank_processes = [process for process in node.processes if process.role == "rank"]
    return [process for process in rank_processes if process.pid in stepped_pids] or rank_processes


def owners(processes: Sequence[Process], heads: Set[int]) -> dict[int, int]:
    """Return the rank that each process works for, by PID.

    A rank, one of `heads`, works for itself; a worker for its nearest ancestor among them. A forkserver may be in
    between, recorded or not. A worker without such an ancestor belongs to the only rank, or to the only one with its
    rank number.
    """
    parents = {process.pid: process.parent for process in processes}
    owner_by_pid = {head: head for head in heads}
    for worker in processes:
        if worker.role == "worker":
            pid, visited = worker.parent, {worker.pid}
            while pid is not None and pid not in heads and pid not in visited:
                visited.add(pid)
                pid = parents.get(pid)
            if pid is not None and pid in heads:
                owner_by_pid[worker.pid] = pid
                continue
            # A launcher sets both for its ranks; without one a worker has rank 0 and world size 1, which mean nothing.
            rank_and_size = worker.rank, worker.world_size
            same_rank_pids = {
                other.pid
                for other in processes
                if (other.rank, other.world_size) == rank_and_size and other.world_size > 1
            }
            candidates = heads if len(heads) == 1 else heads & same_rank_pids
            if len(candidates) == 1:
                (owner_by_pid[worker.pid],) = candidates
    return owner_by_pid
