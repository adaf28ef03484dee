"""What fills GPU memory, and what sharding, checkpointing or another batch size make of it. All sizes in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Share of a device that may be filled on purpose: peaks vary from step to step, allocators fragment (assumption).
FILL = 0.92

# Bytes a parameter of weights, gradients and optimizer state; the second is K = 12 of Rajbhandari et al., "ZeRO",
# SC 2020: 16-bit weights with an fp32 master copy.
FP32_ADAM = (4, 4, 8)
MIXED_ADAM = (2, 2, 12)

# A transformer layer keeps about 34 sbh bytes for the backward pass, its input 2 sbh of them (Korthikanti et al.,
# "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, 16-bit, attention scores not kept).
LAYER_OVER_BOUNDARY = 17

# Forward is a third of forward and backward, so recomputing it all makes the per-sample part of a step 4/3 as long.
RECOMPUTE = 4 / 3


@dataclass(frozen=True, slots=True)
class States:
    """Weights, gradients and optimizer state of one rank."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """Their sum."""
        return self.parameters + self.gradients + self.optimizer

    def sharded(self, stage: int, ranks: int) -> States:
        """Under ZeRO: stage 1 shards the optimizer's state, 2 gradients too, 3 everything.

        Stage 3 needs up to two of the largest sharded unit on top, while it computes.
        """
        return States(
            self.parameters / (ranks if stage >= 3 else 1),
            self.gradients / (ranks if stage >= 2 else 1),
            self.optimizer / (ranks if stage >= 1 else 1),
        )


def states(parameters: float, bytes_each: tuple[float, float, float]) -> States:
    """Of a model with that many parameters."""
    weights, gradients, optimizer = bytes_each
    return States(parameters * weights, parameters * gradients, parameters * optimizer)


def layer_activations(
    sequence: int, batch: int, hidden: int, heads: int, *, keeps: str = "scores", element: int = 2
) -> float:
    """What one transformer layer keeps for the backward pass (Korthikanti et al., 2023).

    `keeps` is "scores" (attention without flash), "no scores" (flash, or selective recomputation) or "input" (the layer
    is recomputed); `element` the bytes of one number.
    """
    numbers = {"scores": 34 + 5 * heads * sequence / hidden, "no scores": 34.0, "input": 2.0}[keeps]
    return numbers * sequence * batch * hidden * element / 2


def logits(sequence: int, batch: int, vocabulary: int) -> float:
    """A language model's output: in 16 bits, and once more in fp32 for the loss."""
    return 6.0 * sequence * batch * vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Equal layers, one after the other, and what each keeps for the backward pass."""

    number: int
    activations: float
    """Of one layer."""
    boundary: float
    """Of these, its input: all that is kept of a checkpointed layer."""

    def kept(self, every: int | None) -> float:
        """At the peak, with every N-th layer checkpointed (None: none): one layer at a time is recomputed."""
        if every is None:
            return self.number * self.activations
        checkpointed = self.number / every
        return checkpointed * self.boundary + (self.number - checkpointed + 1) * self.activations

    def every(self, need: float) -> int:
        """N*: the largest N that frees `need`; 1, every layer, is the most there is."""
        return max(1, math.floor(self.number * (self.activations - self.boundary) / (need + self.activations)))


def layers(number: int, activations: float) -> Layers:
    """Transformer-like layers that keep these activations together."""
    each = activations / number
    return Layers(number=number, activations=each, boundary=each / LAYER_OVER_BOUNDARY)


def recompute_time(forward: float, every: int) -> float:
    """Seconds a step with every N-th layer's forward pass done twice takes longer."""
    return forward / every


@dataclass(frozen=True, slots=True)
class Slope:
    """peak(B) = fixed + each x B."""

    fixed: float
    each: float

    def peak(self, batch: float) -> float:
        """With that many samples in a micro-batch."""
        return self.fixed + self.each * batch

    def largest(self, capacity: float) -> int:
        """B_max: samples that fit a device, with room left for what varies."""
        if self.each <= 0:
            raise ValueError("a batch that takes no memory has no largest size")
        return max(0, math.floor((FILL * capacity - self.fixed) / self.each))


def slope(smaller: tuple[int, float], larger: tuple[int, float]) -> Slope:
    """From the peaks of two batch sizes."""
    each = (larger[1] - smaller[1]) / (larger[0] - smaller[0])
    return Slope(smaller[1] - each * smaller[0], each)


def slope_of_one(batch: int, peak: float, activations: float) -> Slope:
    """From one batch size, as if all activations grew with it: some are workspace, so it errs on the safe side."""
    return Slope(peak - activations, activations / batch)


def checkpoint_throughput(fixed: float, each: float, batch: int, larger: int, recompute: float = RECOMPUTE) -> float:
    """Samples a second with a larger batch bought with recomputation over those now; a step takes fixed + each x B."""
    return larger * (fixed + each * batch) / (batch * (fixed + recompute * each * larger))
