"""How close an operator comes to the limits of its GPU, and what it would save at the rate that is typical of its kind.

An operator takes at least the time of its operations at the peak rate of its dtype, and of its bytes at the peak
bandwidth (Williams et al., "Roofline", 2009). Bytes are the least that must be moved; if data is still in a cache, an
operator may be faster than the memory limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from advisor.models.gpus import Peaks

TENSOR_KINDS = frozenset({"matmul", "attention", "convolution"})
"""Kinds whose rate depends on the dtype; the others compute in fp32."""
EMPTY_KERNEL = 3e-6
"""Least seconds of a kernel, which has to start, fill and drain (assumption)."""
IMPOSSIBLE = 1.05
"""Share of the peak above which the assumed dtype must be wrong: TF32, for example, ran instead of fp32."""


class Typical(NamedTuple):
    """Shares of the peaks that a well-made operator attains."""

    compute: float
    memory: float


TYPICAL: Mapping[str, Typical] = {
    # Best measured anywhere: .87 on an A100, .80 on an H100, .78 on a B200 (Bekman, "Machine Learning Engineering").
    "matmul": Typical(0.7, 0.8),
    # 50 % to 73 % of an A100, 75 % of an H100 (FlashAttention-2 and FlashAttention-3 papers).
    "attention": Typical(0.5, 0.7),
    # Matmul kernels compute convolutions; lower because of halos and odd channel counts (assumption).
    "convolution": Typical(0.5, 0.7),
    # STREAM-like kernels attain .85 to .93 of the memory bandwidth of an A100 and an H100 (BabelStream results); a
    # lower share is assumed for kernels that also reduce or transpose.
    "elementwise": Typical(0.8, 0.8),
    "copy": Typical(0.8, 0.8),
    "optimizer": Typical(0.8, 0.8),
    "normalization": Typical(0.7, 0.7),
    "reduction": Typical(0.7, 0.7),
    "loss": Typical(0.7, 0.7),
    "layout": Typical(0.7, 0.7),
}
"""Typical shares by kind of kernel; other kinds have no model."""
AMD_COMPUTE = 0.64
"""Factor for matrix cores of AMD: the best measured on an MI300X is .51, on an H100 .80 (Bekman)."""

Bound = Literal["compute", "memory", "latency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """An operator compared with its GPU's peaks; a field is None if the operations, the bytes or a peak are unknown."""

    rate: float | None
    """FLOP/s."""
    bandwidth: float | None
    """Bytes/s."""
    share: float | None = None
    """Least possible time divided by the time taken; above 1 if data came from a cache."""
    bound: Bound | None = None
    """The limit that sets the least possible time; latency if empty kernels would take longer."""
    gain: float | None = None
    """Seconds saved at the rate that is typical of its kind; None for latency, which only fewer kernels reduce."""


def peak_rate(peaks: Peaks, arithmetic: str | None) -> float | None:
    """Return the peak FLOP/s of a dtype; None if the GPU lacks it or the table does not list it."""
    rates = {"fp32": peaks.fp32, "tf32": peaks.tf32, "fp16": peaks.half, "bf16": peaks.half}
    return {**rates, "fp8": peaks.fp8, "fp4": peaks.fp4}.get(arithmetic or "")


def roofline(
    *,
    kind: str,
    arithmetic: str | None,
    seconds: float,
    kernels: float,
    flop: float | None,
    moved: float | None,
    peaks: Peaks | None,
    amd: bool = False,
) -> Roofline:
    """Return the roofline of an operator that took `seconds` in `kernels` kernels."""
    result = Roofline(
        rate=flop / seconds if flop and seconds > 0 else None,
        bandwidth=moved / seconds if moved and seconds > 0 else None,
    )
    typical = TYPICAL.get(kind)
    if peaks is None or typical is None or seconds <= 0 or (result.rate is None and result.bandwidth is None):
        return result
    peak = peak_rate(peaks, arithmetic) if kind in TENSOR_KINDS else peaks.fp32
    if peak is not None and result.rate is not None and result.rate > IMPOSSIBLE * peak:
        peak = peaks.tf32 if arithmetic == "fp32" and peaks.tf32 and result.rate <= IMPOSSIBLE * peaks.tf32 else None
    if result.rate is not None and peak is None:
        return result
    compute_time = flop / peak if flop and peak else 0.0
    transfer_time = moved / peaks.bandwidth if moved and peaks.bandwidth else 0.0
    if transfer_time == 0.0 and (moved or not compute_time):
        return result
    least_time = max(compute_time, transfer_time)
    if least_time < kernels * EMPTY_KERNEL:
        return replace(result, share=least_time / seconds, bound="latency")
    compute_share = typical.compute * (AMD_COMPUTE if amd and kind in TENSOR_KINDS else 1.0)
    attainable_time = max(compute_time / compute_share, transfer_time / typical.memory, kernels * EMPTY_KERNEL)
    return replace(
        result,
        share=least_time / seconds,
        bound="compute" if compute_time >= transfer_time else "memory",
        gain=max(0.0, seconds - attainable_time),
    )
