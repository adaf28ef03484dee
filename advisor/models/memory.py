"""GPU memory by part, and how sharding, checkpointing and batch size change it.

All sizes are in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Largest share of GPU memory to fill on purpose: peaks vary between steps, and allocators fragment (assumption).
FILL = 0.92

# Share of GPU memory to free in addition to the excess: if memory ran out, the peak does not include the allocation
# that failed; if more memory is wanted, this is the room for it (assumption).
MISSING_ROOM = 0.2

# Bytes of the optimizer's moments per parameter: fp32, except 8-bit Adam with two moments of one byte and their scales
# (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022).
MOMENTS = {"adamw": 8.0, "adam": 8.0, "adamw8bit": 2.03, "sgd": 0.0, "momentum": 4.0, "lion": 4.0}

# Tensors of fewer elements keep their moments in fp32 (bitsandbytes, min_8bit_size).
LEAST_8BIT = 4096

# A transformer layer keeps about 34 sbh bytes for the backward pass, of which 2 sbh are its input (Korthikanti et al.,
# "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, 16-bit, attention scores not kept).
LAYER_OVER_BOUNDARY = 17

# The forward pass is a third of both passes, so recomputing all of it makes the per-sample part of a step 4/3 as long.
RECOMPUTE = 4 / 3


@dataclass(frozen=True, slots=True)
class States:
    """Weights, gradients and optimizer state of one rank."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """Return the sum of all three."""
        return self.parameters + self.gradients + self.optimizer

    def sharded(self, stage: int, ranks: int) -> States:
        """Return the states at a ZeRO stage: 1 shards the optimizer state, 2 also gradients, 3 everything.

        While computing, stage 3 needs up to two of the largest sharded unit in addition.

        Raises:
            ValueError: the stage is none of 0 to 3, or there is no rank.
        """
        if stage not in (0, 1, 2, 3) or ranks < 1:
            raise ValueError(f"no ZeRO stage {stage} over {ranks} ranks")
        return States(
            self.parameters / (ranks if stage >= 3 else 1),
            self.gradients / (ranks if stage >= 2 else 1),
            self.optimizer / (ranks if stage >= 1 else 1),
        )


def states(parameters: float, bytes_each: tuple[float, float, float]) -> States:
    """Return the states of a model with that many parameters.

    Raises:
        ValueError: the number is negative.
    """
    if parameters < 0:
        raise ValueError(f"no model has {parameters} parameters")
    weights, gradients, optimizer = bytes_each
    return States(parameters * weights, parameters * gradients, parameters * optimizer)


def bytes_each(precision: str, optimizer: str) -> tuple[float, float, float]:
    """Return the bytes per parameter of weights, gradients and optimizer state.

    Args:
        precision: "fp32", "autocast" (the same, and 2 transient bytes of cast weights that count as activations),
            "mixed" (16-bit weights, and an fp32 master copy with the optimizer) or "bf16" (nothing in fp32).
        optimizer: One of `MOMENTS`.

    Raises:
        ValueError: the precision or the optimizer is unknown.
    """
    if optimizer not in MOMENTS:
        raise ValueError(f"unknown optimizer {optimizer!r}: one of {', '.join(MOMENTS)}")
    moments = MOMENTS[optimizer]
    if precision in ("fp32", "autocast"):
        return (4, 4, moments)
    if precision == "mixed":
        return (2, 2, 4 + moments)
    if precision == "bf16":
        return (2, 2, moments if optimizer.endswith("8bit") else moments / 2)
    raise ValueError(f"unknown precision {precision!r}: one of fp32, autocast, mixed, bf16")


def eight_bit_moments(sizes: Iterable[int]) -> float:
    """Return the bytes of 8-bit Adam's moments for tensors of these sizes; small ones stay in fp32."""
    return math.fsum(size * MOMENTS["adamw8bit" if size >= LEAST_8BIT else "adamw"] for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Equal layers in sequence, and what each one keeps for the backward pass."""

    number: int
    activations: float
    """Bytes of one layer."""
    boundary: float
    """Bytes of its input, which is all that a checkpointed layer keeps."""

    def __post_init__(self) -> None:
        if self.number < 1 or not 0 <= self.boundary <= self.activations or self.activations <= 0:
            raise ValueError(f"layers keep their input and more: {self}")

    def kept(self, every: int | None) -> float:
        """Return the bytes kept at the peak with every N-th layer checkpointed; None checkpoints none.

        One layer at a time is recomputed.

        Raises:
            ValueError: `every` is below 1.
        """
        if every is None:
            return self.number * self.activations
        if every < 1:
            raise ValueError(f"cannot checkpoint every {every}th layer")
        checkpointed_layers = self.number / every
        return checkpointed_layers * self.boundary + (self.number - checkpointed_layers + 1) * self.activations

    def every(self, need: float) -> int:
        """Return N*, the largest N that frees `need`; 1, every layer, frees the most.

        Raises:
            ValueError: the need is so negative that nothing has to be freed.
        """
        if need + self.activations <= 0:
            raise ValueError(f"{need} bytes need not be freed of layers that keep {self.activations}")
        return max(1, math.floor(self.number * (self.activations - self.boundary) / (need + self.activations)))


def layers(number: int, activations: float) -> Layers:
    """Return transformer-like layers that together keep these activations."""
    layer_bytes = activations / number
    return Layers(number=number, activations=layer_bytes, boundary=layer_bytes / LAYER_OVER_BOUNDARY)


@dataclass(frozen=True, slots=True)
class Slope:
    """The memory peak by batch size: peak(B) = fixed + each x B."""

    fixed: float
    each: float

    def peak(self, batch: float) -> float:
        """Return the peak with that many samples in a micro-batch."""
        return self.fixed + self.each * batch

    def largest(self, capacity: float, multiple: int = 1) -> int:
        """Return B_max, the samples that fit a device with room for variation, as a multiple of `multiple`.

        Raises:
            ValueError: a sample takes no memory.
        """
        if self.each <= 0:
            raise ValueError("a batch that takes no memory has no largest size")
        samples = max(0, math.floor((FILL * capacity - self.fixed) / self.each))
        return samples // multiple * multiple


def slope(smaller: tuple[int, float], larger: tuple[int, float]) -> Slope:
    """Return the slope through the peaks of two batch sizes.

    Raises:
        ValueError: the second size is not the larger one.
    """
    if larger[0] <= smaller[0]:
        raise ValueError(f"a slope takes two sizes, the smaller first: {smaller[0]}, {larger[0]}")
    sample_bytes = (larger[1] - smaller[1]) / (larger[0] - smaller[0])
    return Slope(smaller[1] - sample_bytes * smaller[0], sample_bytes)


def slope_of_one(batch: int, peak: float, activations: float, staying: float = 0.0) -> Slope:
    """Return the slope from one batch size, as if all activations grew with it.

    Some of them are workspace, so the estimate is cautious. `staying` is the size of the gradients of a step that will
    be split into micro-batches: gradients of the first micro-batch stay while the next one is computed. The present
    forward pass holds no gradients, so at its peak, activations use that memory.

    Raises:
        ValueError: `batch` is below 1.
    """
    if batch < 1:
        raise ValueError(f"no batch of {batch} samples")
    return Slope(peak - activations, (activations + staying) / batch)


def checkpoint_throughput(fixed: float, each: float, batch: int, larger: int, recompute: float = RECOMPUTE) -> float:
    """Return throughput with recomputation and a larger batch, over the present throughput.

    A step takes fixed + each x B seconds.

    Raises:
        ValueError: a size is below 1, the times are no step, or `recompute` is below 1.
    """
    if min(batch, larger) < 1 or min(fixed, each) < 0 or fixed + each <= 0 or recompute < 1:
        raise ValueError(f"no step: {fixed} + {each} x {batch}, then {recompute} x for {larger}")
    return larger * (fixed + each * batch) / (batch * (fixed + recompute * each * larger))


def pieces(batch: int, largest: int) -> tuple[int, int]:
    """Return (k, micro-batch) so that k micro-batches of at most `largest` samples hold at least `batch`.

    Raises:
        ValueError: a size is below 1.
    """
    if batch < 1 or largest < 1:
        raise ValueError(f"cannot make {batch} samples out of at most {largest} at once")
    k = math.ceil(batch / largest)
    return k, math.ceil(batch / k)
