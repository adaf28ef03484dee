"""What gradient accumulation costs and saves, and how large a batch is worth having. Times in seconds."""

from __future__ import annotations

import math


def step_time(micro: float, optimizer: float, communication: float, k: int, *, no_sync: bool) -> float:
    """One update out of `k` micro-steps of forward and backward; without no_sync each of them reduces gradients."""
    return k * micro + optimizer + communication * (1 if no_sync else k)


def split_time(fixed: float, each: float, batch: int, k: int) -> float:
    """The same batch in `k` pieces: never faster, for what a launch costs is paid k times."""
    return k * fixed + each * batch


def pieces(batch: int, largest: int) -> tuple[int, int]:
    """(k, micro-batch) so that k micro-batches of at most `largest` samples make at least `batch`."""
    k = math.ceil(batch / largest)
    return k, math.ceil(batch / k)


def critical_batch(sizes: tuple[int, int], squared_norms: tuple[float, float]) -> float:
    """Samples beyond which a larger batch hardly saves steps: the gradient noise scale.

    From the squared gradient norms at two batch sizes, each averaged over some 50 steps or more (McCandlish et al.,
    "An Empirical Model of Large-Batch Training", 2018).
    """
    (small, large), (noisy, clean) = sizes, squared_norms
    signal = (large * clean - small * noisy) / (large - small)
    noise = (noisy - clean) / (1 / small - 1 / large)
    return noise / signal
