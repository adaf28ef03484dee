"""The throughput of a DataLoader, and the number of workers that keeps a step supplied.

Times are in seconds, and one step consumes one batch unless stated otherwise. The pipeline runs at the pace of its
slowest stage: the training step, the workers together, or the cores that all of them share. It follows the stall
analysis of Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021. Constants marked as
measured come from profile-train's own measurements on 2 cores.
"""

import math

# How much slower workers get side by side, for the low, expected and high gain: measured 1.0 where they sleep on I/O
# (1, 2 and 5 workers, then 8: 80 ms a batch, 10.1 a step) and 1.5 where a worker and the training process filled two
# cores. What is expected comes from caches and cores they share, so only the part of their time that they compute.
CONTENTION = (1.5, 1.15, 1.0)

# One batch made ahead hides the usual spread of t_w.
SPARE_WORKERS = 1

# Beyond four workers a core the queues and processes themselves cost more than another worker brings (assumption).
WORKERS_PER_CORE = 4

# A worker that sleeps on I/O all the time still spends some CPU on unpickling and queues.
LEAST_CPU_SHARE = 0.05

# A queue hand-over and one copy through shared memory (assumption; 3 GB/s is an ordinary memcpy with page faults).
TRANSFER_LATENCY = 0.5e-3
TRANSFER_RATE = 3e9

# Each tensor comes through shared memory of its own, whose descriptor is sent: 0.17 to 0.18 ms of the training
# process's CPU time for each of 30 to 300 small ones (measured), as long as they are: the latency is that of a few.
TRANSFER_EACH = 0.17e-3
FEW_TENSORS = 2

# torch's own default is 2; beyond 8 the memory of W x P batches is no longer worth the smoothing.
PREFETCH_LIMITS = (2, 8)

# Keeps 0.1 / 0.1, which may come out a hair above 1, from being rounded up to 2.
ROUNDING = 1e-9


def needed_workers(t_w: float, t_g: float, *, u_w: float, available: int, cores: int) -> int:
    """Return W*: enough workers to keep up with a step of `t_g`, plus one spare, within the cores.

    `u_w` is a worker's CPU seconds per second, `available` the cores the workers may use, `cores` those of the rank.
    """
    most = WORKERS_PER_CORE * cores
    wanted = math.ceil(t_w / t_g - ROUNDING) + SPARE_WORKERS if t_g > 0 else most
    affordable = math.floor(available / max(u_w, LEAST_CPU_SHARE) + ROUNDING)
    return max(1, min(wanted, affordable, most))


def contention(workers: int, cores: float, u_w: float = 1.0) -> tuple[float, float, float]:
    """Return kappa, the slowdown of workers that run side by side, for the low, expected and high gain.

    The worst value is expected once workers and training outnumber the cores. Workers that mostly sleep count by their
    CPU share. The low gain still assumes that they share a storage.
    """
    low, expected, high = CONTENTION
    return (low, low if workers * u_w + 1 > cores else high + (expected - high) * min(1.0, u_w), high)


def supply(
    t_w: float,
    workers: int,
    *,
    t_g: float,
    u_w: float,
    cores: float,
    threads: float = 0.0,
    contention: float = 1.0,
) -> float:
    """Return the seconds per batch that `workers` >= 1 can deliver.

    `threads` is the number of cores the training process keeps busy during its `t_g`.

    Raises:
        ValueError: there are no workers or no cores, or a number is negative.
    """
    if workers < 1 or cores <= 0 or min(t_w, t_g, u_w, threads) < 0:
        raise ValueError(f"{workers} workers on {cores} cores deliver nothing")
    shared = (t_w * u_w + t_g * threads) / cores
    return max(contention * t_w / workers, shared)


def prefetch_factor(t_w_p99: float, t_g: float, workers: int) -> int:
    """Return P*, the batches each worker prefetches so that the queue outlasts one slow batch.

    Raises:
        ValueError: there are no workers, or `t_w_p99` is negative.
    """
    if workers < 1 or t_w_p99 < 0:
        raise ValueError(f"no queue of {workers} workers outlasts {t_w_p99} s")
    least, most = PREFETCH_LIMITS
    if t_g <= 0:
        return most
    return min(most, max(least, math.ceil((t_w_p99 / t_g + 1) / workers - ROUNDING)))


def transfer_time(batch_bytes: float, tensors: int = FEW_TENSORS) -> float:
    """Return t_ipc, the seconds to transfer a batch of tensors from a worker to the training process.

    Raises:
        ValueError: a number is negative.
    """
    if batch_bytes < 0 or tensors < 0:
        raise ValueError(f"no batch has {batch_bytes} bytes in {tensors} tensors")
    return TRANSFER_LATENCY + batch_bytes / TRANSFER_RATE + max(0, tensors - FEW_TENSORS) * TRANSFER_EACH
