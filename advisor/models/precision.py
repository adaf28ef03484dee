"""What a lower precision makes of a step: a roofline a kind of work.

T1 = max(m / s_m + b / s_b + rest, host floor): matrix products m speed up by the ratio of attainable to achieved rate,
memory-bound kernels b by fewer bytes, the rest not at all. It is why ">3x" is true of fp32 products without tensor
cores on an A100 and false of most programs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor.models.effects import COMPUTE, Triple, shorter
from advisor.models.gpus import Peaks
from advisor.models.state import Effect, Scenario, State

# Share of the data sheet's peak that real training attains, for the low, expected and high gain. The best measured
# anywhere are .87 on an A100, .80 on an H100, .78 on a B200, .51 on an MI300X (Bekman, "Machine Learning Engineering").
ATTAINED_HALF: Triple = (0.30, 0.55, 0.75)
ATTAINED_TF32: Triple = (0.4, 0.6, 0.8)

# Half the bytes, but norms, softmax and the loss stay in fp32 under autocast.
MEMBOUND_SPEEDUP: Triple = (1.0, 1.4, 1.8)
UNCHANGED: Triple = (1.0, 1.0, 1.0)

# Share of its peak at which a program runs *now* where shapes are not recorded (assumption: A100 and V100 reach .82 in
# plain fp32, large consumer GPUs .6). The more it reaches already, the less there is to gain.
ASSUMED_FP32: Triple = (0.9, 0.8, 0.6)
ASSUMED_TF32: Triple = (0.8, 0.6, 0.4)

# Share of the activations' bytes that autocast saves, and bytes a parameter of the copies it caches.
ACTIVATIONS_SAVED: Triple = (0.35, 0.45, 0.5)
CAST_BYTES = 2


# Torchao's float8 training with row-wise scales, against compiled bf16: its authors report 1.34 to 1.5 on clusters, and
# nothing for products that are too small. Of the whole step, for what is not a product is part of those measurements.
FP8_STEP: Triple = (1.0, 1.2, 1.4)

# Measured shares may sum to a hair more than 1.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the matrix products, and how much faster they get."""

    share: float
    """Of all their time."""
    speedup: Triple


def speedup(attained: Triple, peak: float, achieved: Triple) -> Triple:
    """s_m = max(1, attained x peak / achieved); `achieved` in FLOP/s."""
    if min(achieved) <= 0 or peak < 0:
        raise ValueError(f"no products run at {achieved} of {peak} FLOP/s")
    low, expected, high = (max(1.0, a * peak / now) for a, now in zip(attained, achieved, strict=True))
    return (low, expected, high)


def to_half(share_fp32: float, share_tf32: float, peaks: Peaks, achieved: float | None) -> Effect:
    """16-bit autocast, where these shares of the matrix products are fp32 without tensor cores and TF32."""
    parts = [
        Part(share_fp32, speedup(ATTAINED_HALF, peaks.half, _now(peaks.fp32, ASSUMED_FP32, achieved))),
        Part(share_tf32, speedup(ATTAINED_HALF, peaks.half, _now(peaks.tf32 or peaks.fp32, ASSUMED_TF32, achieved))),
    ]
    return faster(parts, MEMBOUND_SPEEDUP)


def to_tf32(share_fp32: float, peaks: Peaks, achieved: float | None) -> Effect:
    """TF32 for the share of the matrix products that are fp32 without tensor cores."""
    now = _now(peaks.fp32, ASSUMED_FP32, achieved)
    return faster([Part(share_fp32, speedup(ATTAINED_TF32, peaks.tf32 or 0.0, now))], UNCHANGED)


def faster(parts: list[Part], membound: Triple) -> Effect:
    """Make each part of the matrix products faster, and so much of the memory-bound work as goes with them.

    The time goes from forward and backward, where both kinds of work are.
    """
    touched = sum(part.share for part in parts)
    if any(part.share < 0 for part in parts) or touched > 1 + ROUNDING:
        raise ValueError(f"parts that make up {touched} of the matrix products")

    def effect(state: State, scenario: Scenario) -> State:
        matmul = state.matmul * (1 - touched + sum(p.share / scenario.of(p.speedup) for p in parts))
        membound_left = state.membound * (1 - touched + touched / scenario.of(membound))
        gone = state.matmul - matmul + state.membound - membound_left
        return replace(shorter(state, gone, COMPUTE, kernels=False), matmul=matmul, membound=membound_left)

    return effect


def memory_change(activations: int | None, parameters: int) -> int | None:
    """Bytes autocast adds to the peak: activations shrink, a 16-bit copy of every weight is cached."""
    if activations is None:
        return None
    return round(CAST_BYTES * parameters - Scenario.EXPECTED.of(ACTIVATIONS_SAVED) * activations)


def _now(peak: float, assumed: Triple, achieved: float | None) -> Triple:
    if achieved is not None:
        return (achieved, achieved, achieved)
    low, expected, high = (share * peak for share in assumed)
    return (low, expected, high)
