"""The cost and gain of gradient accumulation, and the batch size worth having. Times are in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass


def step_time(micro: float, optimizer: float, communication: float, k: int, *, no_sync: bool) -> float:
    """Return the seconds of an update of `k` micro-steps; without `no_sync` each one reduces gradients.

    Raises:
        ValueError: `k` is below 1, or a time is negative.
    """
    if k < 1 or min(micro, optimizer, communication) < 0:
        raise ValueError(f"no update out of {k} micro-steps of {micro}, {optimizer} and {communication} s")
    return k * micro + optimizer + communication * (1 if no_sync else k)


def split_time(fixed: float, each: float, batch: int, k: int) -> float:
    """Return the seconds of the same batch in `k` pieces.

    It is never faster, because the fixed cost is paid k times.

    Raises:
        ValueError: `k` or `batch` is below 1, or a time is negative.
    """
    if k < 1 or batch < 1 or min(fixed, each) < 0:
        raise ValueError(f"cannot split {batch} samples of {fixed} + {each} s in {k}")
    return k * fixed + each * batch


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


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """The noise of gradients between samples, compared with their common signal."""

    signal: float
    """|G|^2, the squared norm of the true gradient."""
    noise: float
    """tr(Sigma), the variance of one sample's gradient."""

    @property
    def critical_batch(self) -> float:
        """Return the batch size beyond which a larger batch hardly saves steps: noise over signal."""
        return self.noise / self.signal


def noise_scale(sizes: tuple[int, int], squared_norms: tuple[float, float]) -> NoiseScale:
    """Return the noise scale from squared gradient norms at a small and a large batch.

    Average each norm over about 50 steps or more. In data-parallel training, the local and the reduced gradients are
    these two. Source: McCandlish et al., "An Empirical Model of Large-Batch Training", 2018.

    Raises:
        ValueError: the norms leave no signal or no noise (average over more steps), or the sizes do not ascend.
    """
    (small, large), (noisy, clean) = sizes, squared_norms
    if not 0 < small < large:
        raise ValueError(f"noise takes two batch sizes, the smaller first: {sizes}")
    signal = (large * clean - small * noisy) / (large - small)
    noise = (noisy - clean) / (1 / small - 1 / large)
    if signal <= 0 or noise < 0:
        raise ValueError(f"squared norms of {squared_norms} at {sizes} samples are too noisy: average over more steps")
    return NoiseScale(signal, noise)
