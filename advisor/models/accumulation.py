"""The cost and gain of gradient accumulation. Times are in seconds."""

from __future__ import annotations

import math


def step_time(micro: float, optimizer: float, communication: float, k: int, *, no_sync: bool) -> float:
    """Return the seconds of an update of `k` micro-steps; without `no_sync` each one reduces gradients.

    Raises:
        ValueError: `k` is below 1, or a time is negative.
    """
    if k < 1 or min(micro, optimizer, communication) < 0:
        raise ValueError(f"no update out of {k} micro-steps of {micro}, {optimizer} and {communication} s")
    return k * micro + optimizer + communication * (1 if no_sync else k)


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
