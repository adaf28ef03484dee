"""The machine of a rank: its cores and memory, and how much of them the program's processes use."""

import math
from dataclasses import dataclass

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import in_steady_steps, other_fraction, step_time_mean
from advisor.metrics.weighted import column_mean
from profiler.schema import OutputFact, Run

FULL = 0.9
"""Share of a machine's cores in use above which programs wait for each other (assumption)."""

BUSY = 0.25
"""Share of cores used by others above which timings on a full machine are not representative.

This is an assumption.
"""

MOST_CORES = 1 << 16
"""More cores than Linux can be built for; a list with a larger number is corrupt."""

_REMEDY = "Let the run last for a few seconds, on a system where psutil may inspect its processes."


@metric(None)
def run(m: Metrics) -> Run:
    """The recording of the primary rank's node."""
    return known(next(iter(m.profile.runs), None), "The recording has no entry for the run", "Record the run again.")


@metric("count", "cores the program may use")
def cores_allowed(m: Metrics) -> float:
    """Cores that the program may use on its node, limited by affinity and cgroup quota.

    If each rank has its own recorder, which may know only that rank's cores, this is the union over all ranks.
    """
    recording = m[run]
    node = m[primary_rank].process.node_rank
    core_sets = [cores(rank.process.cpus or "") for rank in m.profile.ranks if rank.process.node_rank == node]
    own_cores = cores(m[primary_rank].process.cpus or "")
    if (
        sum(entry.host == recording.host for entry in m.profile.runs) < 2
        or own_cores is None
        or len(own_cores) > recording.cores
    ):
        return recording.cores  # one recorder sees the machine, or a quota applies to all ranks
    return max(recording.cores, float(len(frozenset[int]().union(*(entry for entry in core_sets if entry)))))


@metric("count", "ranks on this machine")
def local_ranks(m: Metrics) -> int:
    """Training processes on the primary rank's node."""
    node = m[primary_rank].process.node_rank
    processes = [rank.process for rank in m.profile.ranks if rank.process.node_rank == node]
    return max(len(processes), 1 + max(process.local_rank for process in processes))


@metric("count", "cores per rank")
def cores_per_rank(m: Metrics) -> float:
    """Cores for one rank and its DataLoader workers: the cores allowed on the node, divided by its ranks."""
    return m[cores_allowed] / m[local_ranks]


@metric("count", "cores left for workers")
def cores_available(m: Metrics) -> int:
    """Cores for the DataLoader workers of one rank: its cores minus one for training; at least 1."""
    return max(1, math.floor(m[cores_per_rank]) - 1)


@metric("1", "share of the allowed cores in use")
def cpu_saturation(m: Metrics) -> float:
    """Cores that the program's processes use, divided by the allowed cores minus those that the hypervisor takes."""
    used_cores = _mean(m, "cpu")
    steal = _optional_mean(m, "steal") or 0.0
    available_cores = m[cores_allowed] - steal * m[cores_allowed] / m[run].cores_total
    return used_cores / available_cores if available_cores > 0 else 1.0


@metric("count", "cores used by the program, without its workers")
def process_cpu(m: Metrics) -> float:
    """Cores used by the program without its DataLoader workers, summed over all ranks of the node."""
    return max(0.0, _mean(m, "cpu") - m[worker_cpu])


@metric("count", "cores used by the workers")
def worker_cpu(m: Metrics) -> float:
    """Cores used by DataLoader workers, summed over all ranks of the node."""
    return _mean(m, "cpu_workers")


@metric("count", "cores used by other programs")
def others_cpu(m: Metrics) -> float:
    """Cores of the machine that other programs use or the hypervisor takes."""
    return max(0.0, _mean(m, "machine_cpu") + (_optional_mean(m, "steal") or 0.0) - _mean(m, "cpu"))


@dataclass(frozen=True, slots=True)
class CoreUse:
    """The cores of a machine and how many of them are in use, as means over the steady steps."""

    cores: int
    others: float
    """Cores used by other programs or the hypervisor."""
    program: float

    @property
    def is_full(self) -> bool:
        """Return whether programs wait for each other."""
        return self.others + self.program >= FULL * self.cores

    @property
    def is_crowded(self) -> bool:
        """Return whether other programs slow this one down, so that its timings are not representative."""
        return self.is_full and self.others >= BUSY * self.cores


@metric(None)
def core_use(m: Metrics) -> CoreUse:
    """The use of the machine's cores, by the program and by others."""
    return CoreUse(m[run].cores_total, m[others_cpu], m[process_cpu] + (m.get(worker_cpu) or 0.0))


@metric("B", "host memory of the program")
def host_rss(m: Metrics) -> int:
    """Peak memory of all the program's processes together; shared pages count once per process."""
    return max(_values(m, "rss"))


@metric("B", "least host memory available")
def host_memory_available(m: Metrics) -> int:
    """The least memory that was available on the machine at any time."""
    return min(_values(m, "memory_available"))


@metric("1", "share of the step in log handlers and fsync")
def output_share(m: Metrics) -> float:
    """Share of the step in log handlers and fsync."""
    output = _output(m)
    return output.seconds / output.steps / m[step_time_mean]


@metric("1", "share of the step before log lines and fsync")
def leading_up_share(m: Metrics) -> float:
    """Share of the step between the last training work and a log line or fsync: mostly metrics and formatting.

    It is limited to the rest of `other`, because on a GPU the host may wait for queued work there.
    """
    output = _output(m)
    leading_up = known(output.leading_up, "The work before log output was not timed", "Record the run again.")
    share = leading_up / output.steps / m[step_time_mean]
    return max(0.0, min(share, m[other_fraction] - m[output_share]))


@metric("count", "writes per step")
def writes_per_step(m: Metrics) -> float:
    """Write calls of the training process per step: prints, log files, sockets."""
    output, rank = _output(m), m[primary_rank]
    if output.writes is None:
        raise Missing("Write calls were not counted", "Record on Linux, which counts write calls.")
    if rank.process.world_size > 1 or any(fact.num_workers for fact in rank.loaders):
        raise Missing(
            "Log writes cannot be distinguished from writes to other processes",
            "Record once on one rank, with num_workers=0.",
        )
    return output.writes / output.steps


def cores(listed: str) -> frozenset[int] | None:
    """Return the cores of a list: 0, 1, 2 and 5 for "0-2,5".

    None if the text is not such a list, or names a core beyond `MOST_CORES`.
    """
    numbers: set[int] = set()
    for part in listed.split(",") if listed else ():
        low, _, high = part.partition("-")
        if not (low.isdecimal() and (high or low).isdecimal()) or int(high or low) >= MOST_CORES:
            return None
        numbers.update(range(int(low), int(high or low) + 1))
    return frozenset(numbers)


def _output(m: Metrics) -> OutputFact:
    output = m[primary_rank].output
    if output is None or not output.steps:
        raise Missing(
            "The program's output was not observed",
            "Record the program from its start, including some seconds of training.",
        )
    return output


def _optional_mean(m: Metrics, name: str) -> float | None:
    return column_mean(in_steady_steps(m, m.profile.host_samples), name)


def _mean(m: Metrics, name: str) -> float:
    return known(_optional_mean(m, name), "CPU use was not sampled", _REMEDY)


def _values(m: Metrics, name: str) -> list[int]:
    values = [value for sample in m.profile.host_samples if (value := getattr(sample, name)) is not None]
    return known(values or None, "Host memory use was not sampled", _REMEDY)
