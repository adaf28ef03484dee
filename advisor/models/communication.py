"""The cost of gradient communication in data-parallel training.

Sizes are in bytes.
"""

# torch's DistributedDataParallel: bucket_cap_mb=25, in MiB.
BUCKET = 25 * 1024**2

# Rajbhandari et al., "ZeRO", SC 2020: stages 1 and 2 move what an all-reduce moves, stage 3 half as much again, for the
# weights are gathered for the backward pass once more.
ZERO_3_VOLUME = 1.5


def all_reduce_bytes(size: float, ranks: int) -> float:
    """Return 2 (D-1)/D x size, the bytes each rank sends in a ring all-reduce.

    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.

    Raises:
        ValueError: the size is negative, or there is no rank.
    """
    if size < 0 or ranks < 1:
        raise ValueError(f"nothing to reduce: {size} bytes over {ranks} ranks")
    return 2 * (ranks - 1) / ranks * size


def zero_bytes(size: float, ranks: int, stage: int) -> float:
    """Return the bytes each rank sends per step at a ZeRO stage; 0 is plain data-parallel training.

    Raises:
        ValueError: the stage is none of 0 to 3.
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"ZeRO has no stage {stage}")
    return all_reduce_bytes(size, ranks) * (ZERO_3_VOLUME if stage == 3 else 1.0)
