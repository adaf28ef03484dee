"""What the GPUs are, and what they did in the profiler's windows: kernels, and waiting for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.operators import products, shaped_operators
from advisor.metrics.settings import gpu_need, no_gpu, on_cpu, primary_rank
from advisor.metrics.step import steady_steps
from profiler.schema import DeviceFact, Gpu, Kernel, Window

FEW_CONVOLUTIONS = 0.1
"""Share of all products below which convolutions do not change their rate much (assumption)."""
_NO_WINDOW = Missing(
    "No kernels were recorded", "Run on a GPU, for more than some 20 steps, with windows not switched off."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The GPUs of the job; if they differ, the first."""

    name: str
    capability: tuple[int, int] | None
    memory_total: int
    """Bytes; 0 where the driver does not tell."""
    count: int
    """Visible to the primary rank, or sampled in the whole job, whichever is more."""


@metric(None)
def device(m: Metrics) -> Device:
    """Name, compute capability, memory and number of the GPUs."""
    rank = m[primary_rank]
    count = max(len(rank.devices), len(m.profile.gpus))
    if not count or m[on_cpu]:
        raise no_gpu(m, "Which GPU it is was not recorded")
    seen: DeviceFact | Gpu = rank.devices[0] if rank.devices else m.profile.gpus[0]
    return Device(name=seen.name, capability=seen.capability, memory_total=seen.memory_total, count=count)


@metric(None)
def compute_capability(m: Metrics) -> tuple[int, int]:
    """The compute capability of the GPUs."""
    gpu = m[device]
    if gpu.capability is None:
        raise Missing(f"The compute capability of {gpu.name} is unknown", "Record with a program that uses torch.cuda.")
    return gpu.capability


@metric("1", "share of time the GPU is busy")
def gpu_busy_fraction(m: Metrics) -> float:
    """Share of the profiler's windows covered by kernels."""
    return _sum(m, "busy") / _sum(m, "duration")


@metric("1", "share of time the GPU waits for launches")
def launch_bound_index(m: Metrics) -> float:
    """Idle time because kernels were launched too late, over the window less waits for data, syncs and collectives."""
    waits = sum(_sum(m, name) for name in ("idle_data", "idle_sync"))
    exposed = sum(window.communication_exposed or 0.0 for window in _windows(m))
    rest = _sum(m, "duration") - waits - exposed
    if rest <= 0:
        raise Missing("The windows hold nothing but waiting", "Cure the waiting first, then record again.")
    return _sum(m, "idle_launch") / rest


@metric("s", "host time to enqueue a step")
def host_launch(m: Metrics) -> float:
    """Host seconds to enqueue the GPU work of a step: a floor under any GPU speed-up."""
    measured = [(step.host_launch, step.count) for step in m[steady_steps] if step.host_launch is not None]
    if not measured:
        raise Missing("The enqueuing of GPU work is not timed", "Nothing yet: predictions have no such floor.")
    return sum(value * count for value, count in measured) / sum(count for _, count in measured)


@metric("count")
def kernels_per_step(m: Metrics) -> float:
    """GPU kernels launched in a step."""
    return _sum(m, "kernels") / sum(window.steps for window in _windows(m))


@metric("us", "median kernel length")
def median_kernel_us(m: Metrics) -> float:
    """Median length of a kernel in microseconds; of several windows, their mean."""
    lengths = [window.median_kernel for window in _windows(m) if window.median_kernel is not None]
    if not lengths:
        raise Missing(_NO_WINDOW.what, _NO_WINDOW.remedy, gpu_need(m))
    return 1e6 * sum(lengths) / len(lengths)


@metric("1", "share of GPU time in matrix products")
def matmul_share(m: Metrics) -> float:
    """Share of GPU-busy time in matrix products and convolutions."""
    return _kernel_share(m, lambda kernel: kernel.kind in _MATMUL)


@metric("1", "share of GPU time in convolutions")
def conv_share(m: Metrics) -> float:
    """Share of GPU-busy time in convolutions; depthwise ones, which memory bounds, are not among them."""
    return _kernel_share(m, lambda kernel: kernel.kind == "convolution")


@metric("1", "share of GPU time in changing the layout of images")
def layout_share(m: Metrics) -> float:
    """Share of GPU-busy time in cuDNN's conversions between NCHW and NHWC."""
    return _kernel_share(m, lambda kernel: any(name in kernel.name.lower() for name in _LAYOUT))


@metric("1", "share of GPU time in memory-bound kernels")
def membound_share(m: Metrics) -> float:
    """Share of GPU-busy time in elementwise, normalization, softmax, loss, reduction, layout and copy kernels."""
    return _kernel_share(m, lambda kernel: kernel.kind in _MEMBOUND)


@metric("1", "share of GPU time in the optimizer")
def optim_share(m: Metrics) -> float:
    """Share of GPU-busy time in the optimizer's kernels."""
    return _kernel_share(m, lambda kernel: kernel.kind == "optimizer")


@metric("1", "share of GPU time on tensor cores")
def tensor_core_fraction(m: Metrics) -> float:
    """Share of GPU-busy time in kernels known to use tensor cores."""
    return _kernel_share(m, lambda kernel: kernel.tensor_cores is True)


@metric(None)
def compute_dtype_mix(m: Metrics) -> dict[str, float]:
    """Share of the time in matrix products and convolutions by the dtype their kernels' names tell, or "unknown"."""
    seconds: dict[str, float] = {}
    for kernel in _kernels(m):
        if kernel.kind in _MATMUL:
            seconds[kernel.dtype or "unknown"] = seconds.get(kernel.dtype or "unknown", 0.0) + kernel.total
    total = sum(seconds.values())
    return {dtype: part / total for dtype, part in seconds.items()} if total else {}


@metric("1", "share of GPU time in FP32 matrix products")
def fp32_matmul_share(m: Metrics) -> float:
    """Share of GPU-busy time in matrix products and convolutions of fp32 or TF32."""
    return _kernel_share(m, lambda kernel: kernel.kind in _MATMUL and kernel.dtype in ("fp32", "tf32"))


@metric("1", "share of GPU time in FP16 products")
def fp16_matmul_share(m: Metrics) -> float:
    """Share of GPU-busy time in matrix products and convolutions of fp16."""
    return _kernel_share(m, lambda kernel: kernel.kind in _MATMUL and kernel.dtype == "fp16")


@metric("1", "share of GPU time in 16-bit convolutions")
def half_conv_share(m: Metrics) -> float:
    """Share of GPU-busy time in convolutions of fp16 or bf16."""
    return _kernel_share(m, lambda kernel: kernel.kind == "convolution" and kernel.dtype in ("fp16", "bf16"))


@metric("1", "share of GPU time in BF16 matrix products")
def bf16_gemm_share(m: Metrics) -> float:
    """Share of GPU-busy time in matrix products of bf16, without convolutions."""
    return _kernel_share(m, _is_bf16_gemm)


@metric("us", "mean length of a BF16 matrix product")
def bf16_gemm_us(m: Metrics) -> float:
    """Mean length of a matrix product of bf16 in microseconds."""
    products = [kernel for kernel in _kernels(m) if _is_bf16_gemm(kernel)]
    calls = sum(kernel.calls for kernel in products)
    if not calls:
        raise Missing("No matrix product of bf16 was recorded", "Nothing, unless the program computes in bf16.")
    return 1e6 * sum(kernel.total for kernel in products) / calls


@metric("1", "share of GPU time in FP32 products without tensor cores")
def simt_fp32_matmul_share(m: Metrics) -> float:
    """Share of GPU-busy time in fp32 matrix products and convolutions that use no tensor cores."""
    return _kernel_share(m, lambda kernel: kernel.kind in _MATMUL and _is_simt_fp32(kernel))


@metric("1", "share of GPU time in FP32 matrix products without tensor cores")
def simt_fp32_gemm_share(m: Metrics) -> float:
    """Share of GPU-busy time in fp32 matrix products that use no tensor cores, without convolutions.

    Those may use TF32 by default: what of them still runs without tensor cores does not wait for a switch.
    """
    return _kernel_share(m, lambda kernel: kernel.kind == "matmul" and _is_simt_fp32(kernel))


@metric("FLOP/s", "speed of matrix products")
def achieved_matmul_flops(m: Metrics) -> float:
    """Floating-point operations of matrix products over their time, in the windows that recorded shapes."""
    convolutions = m[conv_share]
    if convolutions > FEW_CONVOLUTIONS * m[matmul_share]:
        raise Missing("The operations of convolutions are not counted", "Nothing: the GPU's typical rate is assumed.")
    found = m[products]
    seconds = sum(product.seconds for product in found)
    if m[shaped_operators].device != "cuda" or seconds <= 0:
        raise Missing("No matrix product of known size was recorded", "Nothing: the GPU's typical rate is assumed.")
    return sum(product.flop * product.calls for product in found) / seconds


@metric("1", "share of GPU time in the loss")
def cross_entropy_share(m: Metrics) -> float:
    """Share of GPU-busy time in cross-entropy: the softmax's logarithm and the likelihood, forward and backward."""
    return _kernel_share(m, lambda kernel: kernel.kind == "loss")


@metric("1", "share of the copying that is from pageable memory")
def h2d_pageable_share(m: Metrics) -> float:
    """Share of the exposed host-to-device copy time that came from pageable memory."""
    copies = _sum(m, "h2d")
    return _sum(m, "h2d_pageable") / copies if copies > 0 else 0.0


_MATMUL = ("matmul", "convolution")
_MEMBOUND = ("elementwise", "normalization", "loss", "reduction", "layout", "copy")
_LAYOUT = ("nchwtonhwc", "nhwctonchw")


def _is_bf16_gemm(kernel: Kernel) -> bool:
    return kernel.kind == "matmul" and kernel.dtype == "bf16"


def _is_simt_fp32(kernel: Kernel) -> bool:
    return kernel.dtype == "fp32" and kernel.tensor_cores is not True


def _windows(m: Metrics) -> list[Window]:
    """Where there are any, those without shapes: to record them slows the host, and the GPU waits for launches."""
    windows = [window for window in m[primary_rank].windows if window.device == "cuda" and window.steps]
    if not windows:
        raise Missing(_NO_WINDOW.what, _NO_WINDOW.remedy, gpu_need(m))
    return [window for window in windows if not window.shapes] or windows


def _sum(m: Metrics, name: str) -> float:
    values = [value for window in _windows(m) if (value := getattr(window, name)) is not None]
    if not values:
        raise Missing("The profiler's windows do not tell this", _NO_WINDOW.remedy)
    return float(sum(values))


def _kernels(m: Metrics) -> list[Kernel]:
    kernels = [kernel for kernel in m[primary_rank].kernels if kernel.device == "cuda" and kernel.kind != "host"]
    if not kernels:
        raise Missing(_NO_WINDOW.what, _NO_WINDOW.remedy, gpu_need(m))
    return kernels


def _kernel_share(m: Metrics, wanted: Callable[[Kernel], bool]) -> float:
    kernels = _kernels(m)
    total = sum(kernel.total for kernel in kernels)
    if total <= 0:
        raise Missing("The recorded kernels took no time", _NO_WINDOW.remedy)
    return sum(kernel.total for kernel in kernels if wanted(kernel)) / total
