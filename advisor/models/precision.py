"""The effect of a lower precision on a step: a roofline for each kind of work.

T1 = max(m / s_m + b / s_b + rest, host floor): matmuls m speed up by the ratio of attainable to achieved rate,
memory-bound kernels b by moving fewer bytes, the rest not at all. Therefore ">3x" is true of fp32 matmuls without
tensor cores on an A100, but false of most programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.models.effects import Triple, faster_kernels
from advisor.models.gpus import Peaks
from advisor.models.roofline import EMPTY_KERNEL
from advisor.models.state import Effect, Scenario, State

# Share of the data sheet's peak that real training attains, for the low, expected and high gain. The best measured
# anywhere are .87 on an A100, .80 on an H100, .78 on a B200, .51 on an MI300X (Bekman, "Machine Learning Engineering").
ATTAINED_HALF: Triple = (0.30, 0.55, 0.75)
ATTAINED_TF32: Triple = (0.4, 0.6, 0.8)
# Tensor cores at half rate (GeForce) are easier to keep busy: large matmuls come close to the data sheet's rate
# (assumption).
CUT_HALF: Triple = (0.5, 0.7, 0.9)
CUT_TF32: Triple = (0.8, 0.95, 1.0)

# Half the bytes, but norms, softmax and the loss stay in fp32 under autocast.
MEMBOUND_SPEEDUP: Triple = (1.0, 1.4, 1.8)
UNCHANGED: Triple = (1.0, 1.0, 1.0)

# Present share of the fp32 peak if shapes were not recorded (assumption: an A100 and a V100 reach .82 in large SGEMMs,
# a GeForce about .65), the same in all scenarios. Present TF32 is assumed to attain ATTAINED_TF32 of the same scenario,
# because a program that keeps the GPU busy now also keeps it busy afterwards.
ASSUMED_FP32 = 0.8
CUT_FP32 = 0.65

HALF_BYTES, FP32_BYTES = 2, 4

# Share of the activations' bytes that autocast saves, and bytes per parameter of the 16-bit copies that it caches.
ACTIVATIONS_SAVED: Triple = (0.35, 0.45, 0.5)
CAST_BYTES = 2


# Share of the fp8 peak that large matmuls attain (assumption): bf16 matmuls attain 0.7, and scaling costs part of that.
FP8_ATTAINED: Triple = (0.45, 0.6, 0.7)
# Bytes per input element to convert, read in bf16 and written in fp8, and share of the memory bandwidth that the
# converting kernel attains.
CONVERTED_BYTES = 3
CONVERTING = 0.8

# Measured shares may sum to slightly more than 1.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class MatmulCall:
    """Matmuls of one kind, with the quantities that limit their speed-up."""

    share: float
    """Share of the time of all matmuls."""
    seconds: float
    """Seconds of one call."""
    numbers: int = 0
    """Elements that one call reads and writes; 0 if the shapes are unknown."""


MatmulPart = tuple[float, Triple]
"""Some of the matmuls: their share of the time of all matmuls, and their speed-up."""


def speedup(attained: Triple, peak: float, achieved: Triple) -> Triple:
    """Return s_m = max(1, attained x peak / achieved), with rates in FLOP/s.

    Raises:
        ValueError: an achieved rate is not positive, or the peak is negative.
    """
    if min(achieved) <= 0 or peak < 0:
        raise ValueError(f"invalid rates: {achieved} of {peak} FLOP/s")
    low, expected, high = (max(1.0, share * peak / rate) for share, rate in zip(attained, achieved, strict=True))
    return (low, expected, high)


def attained_half(peaks: Peaks) -> Triple:
    """Return the share of the 16-bit peak that training attains on this GPU."""
    return CUT_HALF if peaks.is_half_rate else ATTAINED_HALF


def attained_tf32(peaks: Peaks) -> Triple:
    """Return the share of the TF32 peak that training attains on this GPU."""
    return CUT_TF32 if peaks.is_half_rate else ATTAINED_TF32


def to_half(
    share_fp32: float, share_tf32: float, peaks: Peaks, achieved: float | None, calls: Sequence[MatmulCall] = ()
) -> Effect:
    """Return the effect of running the forward pass in 16-bit autocast.

    Args:
        share_fp32: Share of the matmuls' time that is fp32 without tensor cores.
        share_tf32: Share that is TF32.
        peaks: The GPU's peak rates.
        achieved: Present FLOP/s of the matmuls; None if shapes were not recorded.
        calls: The matmuls, which limit the gain; without them, it is not limited.
    """
    parts = [
        part
        for share, rates in ((share_fp32, _now(peaks, achieved)), (share_tf32, _now_tf32(peaks, achieved)))
        for part in _parts(share, speedup(attained_half(peaks), peaks.half, rates), calls, peaks, HALF_BYTES)
    ]
    return faster(parts, MEMBOUND_SPEEDUP)


def to_tf32(share_fp32: float, peaks: Peaks, achieved: float | None, calls: Sequence[MatmulCall] = ()) -> Effect:
    """Return the effect of allowing TF32 for fp32 matmuls without tensor cores; arguments as in `to_half`."""
    speedups = speedup(attained_tf32(peaks), peaks.tf32 or 0.0, _now(peaks, achieved))
    return faster(_parts(share_fp32, speedups, calls, peaks, FP32_BYTES), UNCHANGED)


def _parts(share: float, by: Triple, calls: Sequence[MatmulCall], peaks: Peaks, width: int) -> list[MatmulPart]:
    """Return the matmuls with their speed-ups.

    No call becomes shorter than moving its bytes takes, or than an empty kernel.
    """
    if not calls:
        return [(share, by)]
    parts: list[MatmulPart] = []
    for call in calls:
        transfer_time = width * call.numbers / peaks.bandwidth if peaks.bandwidth else 0.0
        limit = max(1.0, call.seconds / max(EMPTY_KERNEL, transfer_time))
        low, expected, high = (min(limit, factor) for factor in by)
        parts.append((share * call.share, (low, expected, high)))
    return parts


def faster(parts: list[MatmulPart], membound: Triple) -> Effect:
    """Return the effect of making each part of the matmuls faster, and the memory-bound work with them.

    Raises:
        ValueError: a share is negative, or the shares sum to more than 1.
    """
    total_share = sum(share for share, _ in parts)
    if any(share < 0 for share, _ in parts) or total_share > 1 + ROUNDING:
        raise ValueError(f"shares of matmuls must not be negative, and sum to at most 1: {total_share}")

    def effect(state: State, scenario: Scenario) -> State:
        return faster_kernels(
            state,
            matmul=state.matmul * (total_share - sum(share / scenario.of(speedups) for share, speedups in parts)),
            membound=state.membound * (total_share - total_share / scenario.of(membound)),
        )

    return effect


def memory_change(activations: int | None, parameters: int) -> int | None:
    """Return the bytes autocast adds to the peak; None if the activations are unknown.

    Activations shrink, and a 16-bit copy of every weight is cached.
    """
    if activations is None:
        return None
    return round(CAST_BYTES * parameters - Scenario.EXPECTED.of(ACTIVATIONS_SAVED) * activations)


def _now(peaks: Peaks, achieved: float | None) -> Triple:
    """Return the present FLOP/s of fp32 matmuls, measured or assumed."""
    rate = achieved if achieved is not None else (CUT_FP32 if peaks.is_half_rate else ASSUMED_FP32) * peaks.fp32
    return (rate, rate, rate)


def _now_tf32(peaks: Peaks, achieved: float | None) -> Triple:
    """Return the present FLOP/s of TF32 matmuls, measured or assumed.

    The assumed rate is high in the scenarios in which the 16-bit rate is high.
    """
    if achieved is not None:
        return _now(peaks, achieved)
    low, expected, high = (share * (peaks.tf32 or peaks.fp32) for share in attained_tf32(peaks))
    return (low, expected, high)


def fp8_speedup(products: Sequence[tuple[float, float, float]], peak: float, bandwidth: float) -> Triple:
    """Return the speed-up of matmuls in fp8, including conversions; matmuls that gain nothing stay in bf16.

    Args:
        products: Seconds, FLOP, and elements of both inputs, for each kind of matmul.
        peak: The GPU's FLOP/s in fp8.
        bandwidth: Its memory bandwidth in bytes/s.
    """
    present_seconds = sum(seconds for seconds, _, _ in products)

    def after(attained: float) -> float:
        return sum(
            min(seconds, flop / (attained * peak) + CONVERTED_BYTES * inputs / (CONVERTING * bandwidth))
            for seconds, flop, inputs in products
        )

    low, expected, high = (present_seconds / after(attained) for attained in FP8_ATTAINED)
    return (low, expected, high)
