"""What data parallel training pays for its gradients. Times in seconds, sizes in bytes, rates in bytes/s.

Where a trace shows the exposed communication, that stands in place of `exposed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

# Share of the backward pass behind which buckets can travel: the first one is full only after some of it (assumption).
OVERLAPPED = 0.9

# torch's DistributedDataParallel: bucket_cap_mb=25, in MiB.
BUCKET = 25 * 1024**2

# Rajbhandari et al., "ZeRO", SC 2020: stages 1 and 2 move what an all-reduce moves, stage 3 half as much again, for the
# weights are gathered for the backward pass once more.
ZERO_3_VOLUME = 1.5


def all_reduce_bytes(size: float, ranks: int) -> float:
    """2 (D-1)/D x size: what each rank sends in a ring all-reduce (Patarasuk and Yuan, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations", JPDC 2009).
    """
    if size < 0 or ranks < 1:
        raise ValueError(f"nothing to reduce: {size} bytes over {ranks} ranks")
    return 2 * (ranks - 1) / ranks * size


def zero_bytes(size: float, ranks: int, stage: int) -> float:
    """What each rank sends a step under a stage of ZeRO; 0 is plain data parallel training."""
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"ZeRO has no stage {stage}")
    return all_reduce_bytes(size, ranks) * (ZERO_3_VOLUME if stage == 3 else 1.0)


def all_reduce_time(size: float, ranks: int, bandwidth: float) -> float:
    """t_c of a ring all-reduce over links of that bandwidth."""
    if bandwidth <= 0:
        raise ValueError(f"no link moves {bandwidth} bytes/s")
    return all_reduce_bytes(size, ranks) / bandwidth


def exposed(collectives: float, backward: float, last_bucket: float) -> float:
    """max(t_c - 0.9 backward, last bucket): what the backward pass does not hide; all of it is never hidden."""
    if min(collectives, backward, last_bucket) < 0:
        raise ValueError(f"no negative times: {collectives}, {backward}, {last_bucket}")
    return min(collectives, max(collectives - OVERLAPPED * backward, last_bucket))


def exposed_all_reduce(size: float, ranks: int, bandwidth: float, backward: float) -> float:
    """Exposed seconds of reducing gradients of that many bytes in buckets of torch's default size.

    The last bucket counts as full and uncompressed: it errs on the safe side for smaller ones.
    """
    last = all_reduce_time(min(size, BUCKET), ranks, bandwidth)
    return exposed(all_reduce_time(size, ranks, bandwidth), backward, last)


def straggler_share(step_times: Sequence[float]) -> float:
    """1 - lower median / max of the ranks' times without communication: what all wait for the slowest one."""
    if not step_times or min(step_times) < 0:
        raise ValueError("a straggler is one of several ranks with times of zero or more")
    slowest = max(step_times)
    return 1 - median_low(step_times) / slowest if slowest > 0 else 0.0
