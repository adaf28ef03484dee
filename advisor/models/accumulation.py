"""What gradient accumulation costs and saves, and how large a batch is worth having. Times in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass


def step_time(micro: float, optimizer: float, communication: float, k: int, *, no_sync: bool) -> float:
    """One update out of `k` micro-steps of forward and backward; without no_sync each of them reduces gradients."""
    if k < 1 or min(micro, optimizer, communication) < 0:
        raise ValueError(f"no update out of {k} micro-steps of {micro}, {optimizer} and {communication} s")
    return k * micro + optimizer + communication * (1 if no_sync else k)


def split_time(fixed: float, each: float, batch: int, k: int) -> float:
    """The same batch in `k` pieces: never faster, for what a launch costs is paid k times."""
    if k < 1 or batch < 1 or min(fixed, each) < 0:
        raise ValueError(f"cannot split {batch} samples of {fixed} + {each} s in {k}")
    return k * fixed + each * batch


def pieces(batch: int, largest: int) -> tuple[int, int]:
    """(k, micro-batch) so that k micro-batches of at most `largest` samples make at least `batch`."""
    if batch < 1 or largest < 1:
        raise ValueError(f"cannot make {batch} samples out of at most {largest} at once")
    k = math.ceil(batch / largest)
    return k, math.ceil(batch / k)


def amortized_share(k: int) -> float:
    """(k-1)/k: share of what is paid once an update that goes, a sample, when k micro-batches share it."""
    if k < 1:
        raise ValueError(f"no update out of {k} micro-batches")
    return (k - 1) / k


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """How gradients scatter from sample to sample, against what they agree on."""

    signal: float
    """|G|^2, of the true gradient."""
    noise: float
    """tr(Sigma), the variance of one sample's gradient."""

    @property
    def critical_batch(self) -> float:
        """Samples beyond which a larger batch hardly saves steps: noise over signal."""
        return self.noise / self.signal


def noise_scale(sizes: tuple[int, int], squared_norms: tuple[float, float]) -> NoiseScale:
    """From the squared gradient norms at a small and a large batch, each averaged over some 50 steps or more.

    In data parallel training the local and the reduced gradients are these two. McCandlish et al., "An Empirical Model
    of Large-Batch Training", 2018. ValueError where the norms leave no signal or no noise: average over more steps.
    """
    (small, large), (noisy, clean) = sizes, squared_norms
    if not 0 < small < large:
        raise ValueError(f"noise takes two batch sizes, the smaller first: {sizes}")
    signal = (large * clean - small * noisy) / (large - small)
    noise = (noisy - clean) / (1 / small - 1 / large)
    if signal <= 0 or noise < 0:
        raise ValueError(f"squared norms of {squared_norms} at {sizes} samples are too noisy: average over more steps")
    return NoiseScale(signal, noise)
