"""The throughput of a DataLoader, and the number of workers that keeps a step supplied.

Times are in seconds, and one step consumes one batch unless stated otherwise. The pipeline runs at the pace of its
slowest stage: the training step, the workers together, or the cores that all of them share. It follows the stall
analysis of Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021. Constants marked as
measured come from profile-train's own measurements on 2 cores.
"""

import math
from dataclasses import dataclass

# Slowdown of workers that run side by side, for the low, expected and high gain. Measured: 1.0 if they sleep on I/O (1,
# 2 and 5 workers, then 8: 80 ms per batch, 10.1 ms per step), and 1.5 if a worker and the training process filled two
# cores. The expected slowdown comes from shared caches and cores, so it applies only to the share of time in which
# workers compute.
CONTENTION = (1.5, 1.15, 1.0)

# One batch prepared ahead hides the usual spread of batch_time.
SPARE_WORKERS = 1

# Above four workers per core, queues and processes cost more than another worker saves (assumption).
WORKERS_PER_CORE = 4

# A worker that sleeps on I/O all the time still spends some CPU on unpickling and queues.
LEAST_CPU_SHARE = 0.05

# Seconds of a queue transfer, and bytes/s of one copy through shared memory (assumption; 3 GB/s is an ordinary memcpy
# with page faults).
TRANSFER_LATENCY = 0.5e-3
TRANSFER_RATE = 3e9

# Seconds per tensor: each has its own shared memory, whose descriptor is sent. Measured: 0.17 to 0.18 ms of the
# training process's CPU time for each of 30 to 300 small tensors. The latency above includes the first FEW_TENSORS.
TRANSFER_EACH = 0.17e-3
FEW_TENSORS = 2

# torch's default is 2; above 8, less jitter is not worth the memory of W x P batches.
PREFETCH_LIMITS = (2, 8)

# Keeps a ratio such as 0.1 / 0.1, which may be slightly above 1, from being rounded up to 2.
ROUNDING = 1e-9


def contention(workers: int, cores: float, worker_cpu_share: float = 1.0) -> tuple[float, float, float]:
    """Return kappa, the slowdown of workers that run side by side, for the low, expected and high gain.

    The worst value is expected once workers and training outnumber the cores. Workers that mostly sleep count by their
    CPU share. The low gain assumes contention even then, because they may share storage.
    """
    low, expected, high = CONTENTION
    return (
        low,
        low if workers * worker_cpu_share + 1 > cores else high + (expected - high) * min(1.0, worker_cpu_share),
        high,
    )


def supply(
    batch_time: float,
    workers: int,
    *,
    step_time_without_wait: float,
    worker_cpu_share: float,
    cores: float,
    threads: float = 0.0,
    contention: float = 1.0,
) -> float:
    """Return the seconds per batch that `workers` >= 1 can deliver.

    `threads` is the number of cores the training process keeps busy during its `step_time_without_wait`.

    Raises:
        ValueError: there are no workers or no cores, or a number is negative.
    """
    if workers < 1 or cores <= 0 or min(batch_time, step_time_without_wait, worker_cpu_share, threads) < 0:
        raise ValueError(f"{workers} workers on {cores} cores deliver nothing")
    core_time = (batch_time * worker_cpu_share + step_time_without_wait * threads) / cores
    return max(contention * batch_time / workers, core_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """DataLoader workers, with their number chosen to match the rest of the step."""

    batch_time: float
    """Seconds that one worker takes to prepare a batch."""
    worker_cpu_share: float
    """CPU seconds per second of `batch_time`."""
    cores: int
    """C_avail, the cores that the workers of this rank may use."""
    host_cores: int
    """All cores that the rank may use."""
    batches: float = 1.0
    """Batches per step, more than one under gradient accumulation."""
    compute_threads: float = 0.0
    """Cores that the training process keeps busy while computing."""
    contention: float = 1.0
    """kappa, the slowdown of workers that run side by side."""

    def number(self, compute: float) -> int:
        """Return W* for a step that takes `compute` seconds once its batches are ready.

        These are enough workers to keep up, plus one spare, within the cores.
        """
        most_workers = WORKERS_PER_CORE * self.host_cores
        step_time_without_wait = compute / self.batches
        needed_workers = (
            math.ceil(self.batch_time / step_time_without_wait - ROUNDING) + SPARE_WORKERS
            if step_time_without_wait > 0
            else most_workers
        )
        affordable_workers = math.floor(self.cores / max(self.worker_cpu_share, LEAST_CPU_SHARE) + ROUNDING)
        return max(1, min(needed_workers, affordable_workers, most_workers))

    def supply(self, compute: float) -> float:
        """Return the seconds that W* workers take for the batches of one step."""
        return self.batches * supply(
            self.batch_time,
            self.number(compute),
            step_time_without_wait=compute / self.batches,
            worker_cpu_share=self.worker_cpu_share,
            cores=self.host_cores,
            threads=self.compute_threads,
            contention=self.contention,
        )


def prefetch_factor(batch_time_p99: float, step_time_without_wait: float, workers: int) -> int:
    """Return P*, the batches each worker prefetches so that the queue outlasts one slow batch.

    Raises:
        ValueError: there are no workers, or `batch_time_p99` is negative.
    """
    if workers < 1 or batch_time_p99 < 0:
        raise ValueError(f"no queue of {workers} workers outlasts {batch_time_p99} s")
    lower_limit, upper_limit = PREFETCH_LIMITS
    if step_time_without_wait <= 0:
        return upper_limit
    return min(
        upper_limit, max(lower_limit, math.ceil((batch_time_p99 / step_time_without_wait + 1) / workers - ROUNDING))
    )


def transfer_time(batch_bytes: float, tensors: int = FEW_TENSORS) -> float:
    """Return t_ipc, the seconds to transfer a batch of tensors from a worker to the training process.

    Raises:
        ValueError: a number is negative.
    """
    if batch_bytes < 0 or tensors < 0:
        raise ValueError(f"no batch has {batch_bytes} bytes in {tensors} tensors")
    return TRANSFER_LATENCY + batch_bytes / TRANSFER_RATE + max(0, tensors - FEW_TENSORS) * TRANSFER_EACH
