"""The cost and gain of gradient accumulation. Times are in seconds."""

import math


def pieces(batch: int, largest: int) -> tuple[int, int]:
    """Return (k, micro-batch) so that k micro-batches of at most `largest` samples hold at least `batch`.

    Raises:
        ValueError: a size is below 1.
    """
    if batch < 1 or largest < 1:
        raise ValueError(f"cannot make {batch} samples out of at most {largest} at once")
    k = math.ceil(batch / largest)
    return k, math.ceil(batch / k)


def amortized_share(k: int) -> float:
    """Return (k-1)/k, the share of per-update costs saved per sample when k micro-batches share them.

    Raises:
        ValueError: `k` is below 1.
    """
    if k < 1:
        raise ValueError(f"no update out of {k} micro-batches")
    return (k - 1) / k
