"""The machine a rank runs on: its cores, its memory, what the program's processes use of them."""

from __future__ import annotations

import math

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.cores import cores
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import other_fraction, steady_window, step_time_mean
from profiler.schema import HostSample, OutputFact, Run

_REMEDY = "Let the run last some seconds, on a system where psutil may look at its processes."


@metric(None)
def run(m: Metrics) -> Run:
    """The recording of the primary rank's node."""
    if not m.profile.runs:
        raise Missing("The run's own row is lost", "Record it anew.")
    return m.profile.runs[0]


@metric("count", "cores the program may use")
def cores_allowed(m: Metrics) -> float:
    """Cores the program may use on its node: affinity and cgroup quota.

    Where each rank has a recorder of its own, which may know that rank's cores alone, those of all of them.
    """
    mine = m[run]
    node = m[primary_rank].process.node_rank
    lists = [cores(rank.process.cpus or "") for rank in m.profile.ranks if rank.process.node_rank == node]
    one = cores(m[primary_rank].process.cpus or "")
    if sum(each.host == mine.host for each in m.profile.runs) < 2 or one is None or len(one) > mine.cores:
        return mine.cores  # it sees the machine, or a quota holds for all
    return max(mine.cores, float(len(frozenset[int]().union(*(each for each in lists if each)))))


@metric("count", "ranks on this machine")
def local_ranks(m: Metrics) -> int:
    """Training processes on the primary rank's node."""
    node = m[primary_rank].process.node_rank
    processes = [rank.process for rank in m.profile.ranks if rank.process.node_rank == node]
    return max(len(processes), 1 + max(process.local_rank for process in processes))


@metric("count", "cores for each rank")
def cores_per_rank(m: Metrics) -> float:
    """Cores for one rank and its DataLoader workers: an equal part of those the program may use on its node."""
    return m[cores_allowed] / m[local_ranks]


@metric("count", "cores left for workers")
def cores_available(m: Metrics) -> int:
    """Cores for the DataLoader workers of one rank: its part, less one for the training process; at least 1."""
    return max(1, math.floor(m[cores_per_rank]) - 1)


@metric("1", "share of the allowed cores in use")
def cpu_saturation(m: Metrics) -> float:
    """Cores the program's processes use over the cores they may use, less what the hypervisor takes."""
    used = _mean(m, "cpu")
    steal = _optional_mean(m, "steal") or 0.0
    left = m[cores_allowed] - steal * m[cores_allowed] / m[run].cores_total
    return used / left if left > 0 else 1.0


@metric("count", "cores the program uses without its workers")
def process_cpu(m: Metrics) -> float:
    """Cores used by the program without its DataLoader workers, all ranks of the node."""
    return max(0.0, _mean(m, "cpu") - m[worker_cpu])


@metric("count", "cores the workers use")
def worker_cpu(m: Metrics) -> float:
    """Cores used by DataLoader workers, all ranks of the node."""
    return _mean(m, "cpu_workers")


@metric("count", "cores that others use")
def others_cpu(m: Metrics) -> float:
    """Cores of the machine that other programs use or the hypervisor takes."""
    return max(0.0, _mean(m, "machine_cpu") + (_optional_mean(m, "steal") or 0.0) - _mean(m, "cpu"))


@metric("B", "host memory of the program")
def host_rss(m: Metrics) -> int:
    """Most memory the program's processes held together; shared pages are counted in each."""
    return max(_values(m, "rss"))


@metric("B", "least host memory left")
def host_memory_available(m: Metrics) -> int:
    """Least memory that was left on the machine."""
    return min(_values(m, "memory_available"))


@metric("1", "share of the step in log handlers and fsync")
def output_share(m: Metrics) -> float:
    """Share of the step in log handlers and fsync."""
    output = _output(m)
    return output.seconds / output.steps / m[step_time_mean]


@metric("1", "share of the step that leads up to log lines and fsync")
def leading_up_share(m: Metrics) -> float:
    """Share of the step between what the training did last and a log line or fsync: mostly metrics and formatting.

    No more than the step's remainder has beside them: on a GPU the host may wait there for what it has enqueued.
    """
    output = _output(m)
    if output.leading_up is None:
        raise Missing("What leads up to the log was not timed", "Record anew.")
    share = output.leading_up / output.steps / m[step_time_mean]
    return max(0.0, min(share, m[other_fraction] - m[output_share]))


@metric("count", "writes in a step")
def writes_per_step(m: Metrics) -> float:
    """Write calls of the training process in a step: prints, log files, sockets."""
    output, rank = _output(m), m[primary_rank]
    if output.writes is None:
        raise Missing("Write calls were not counted", "Record on Linux, which counts them.")
    if rank.process.world_size > 1 or any(fact.num_workers for fact in rank.loaders):
        raise Missing(
            "Writes to a log cannot be told from those to other processes",
            "Record once on one rank, with num_workers=0.",
        )
    return output.writes / output.steps


def _output(m: Metrics) -> OutputFact:
    output = m[primary_rank].output
    if output is None or not output.steps:
        raise Missing("What the program writes was not observed", "Record its start, and some seconds of training.")
    return output


def _samples(m: Metrics) -> list[HostSample]:
    """Those of the steady part of the run; all, if it was too short for any."""
    start, end = m[steady_window]
    samples = m.profile.host_samples
    return [sample for sample in samples if start <= sample.time <= end] or list(samples)


def _optional_mean(m: Metrics, name: str) -> float | None:
    pairs = [(getattr(sample, name), sample.count) for sample in _samples(m)]
    measured = [(value, count) for value, count in pairs if value is not None]
    return sum(v * n for v, n in measured) / sum(n for _, n in measured) if measured else None


def _mean(m: Metrics, name: str) -> float:
    mean = _optional_mean(m, name)
    if mean is None:
        raise Missing("The use of the CPU was not sampled", _REMEDY)
    return mean


def _values(m: Metrics, name: str) -> list[int]:
    values = [value for sample in m.profile.host_samples if (value := getattr(sample, name)) is not None]
    if not values:
        raise Missing("The use of the host's memory was not sampled", _REMEDY)
    return values
