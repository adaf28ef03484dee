"""What the GPUs did: NVML samples of the steady part of the run, and kernels of the profiler's windows.

Samples are of the GPUs the program uses; a GPU counts in a moment only if it was busy then, unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from advisor.metrics.base import Metrics, Missing, Need, metric
from advisor.metrics.operators import products, shaped_operators
from advisor.metrics.settings import gpu_need, on_cpu, primary_rank
from advisor.metrics.step import steady_steps, steady_window
from profiler.schema import DeviceFact, Gpu, GpuSample, Kernel, Window

BUSY = 0.1
"""Share of a sample's period with kernels from which the GPU counts as busy: less is a stray kernel or a desktop."""
SLOWED = 0.9
"""Clock over its maximum below which a merged sample that saw a throttle reason counts as throttled throughout."""
FEW_CONVOLUTIONS = 0.1
"""Share of all products below which convolutions do not change their rate much (assumption)."""
POWER_CAP = 0x4
THERMAL = 0x20 | 0x40 | 0x80
REASONS = {
    POWER_CAP: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML clocks event reasons (nvml.h); the others are no limits: idle, application clocks, sync boost, display."""

_NO_GPU = Missing("No GPU was seen", "Run on a machine with an NVIDIA GPU, its driver and nvidia-ml-py.")
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
        raise Missing(_NO_GPU.what, _NO_GPU.remedy, Need.GPU)
    seen: DeviceFact | Gpu = rank.devices[0] if rank.devices else m.profile.gpus[0]
    return Device(name=seen.name, capability=seen.capability, memory_total=seen.memory_total, count=count)


@metric(None)
def compute_capability(m: Metrics) -> tuple[int, int]:
    """The compute capability of the GPUs."""
    gpu = m[device]
    if gpu.capability is None:
        raise Missing(f"The compute capability of {gpu.name} is unknown", "Record with a program that uses torch.cuda.")
    return gpu.capability


@metric("1", "GPU utilization")
def gpu_utilization(m: Metrics) -> float:
    """Share of time in which some kernel ran, by NVML: an upper bound of busy. Mean over the GPUs the program uses."""
    return _mean_of(_samples(m), lambda sample: sample.utilization, "GPU utilization")


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


@metric("1", "SMs active")
def sm_active(m: Metrics) -> float:
    """Share of time in which a multiprocessor had work, mean over them and over busy samples (Hopper or newer)."""
    return _mean_of(_busy(m), lambda sample: sample.sm_active, "SM activity", "Run on a Hopper or newer GPU.")


@metric("1", "SM occupancy")
def sm_occupancy(m: Metrics) -> float:
    """Resident warps over the most there can be, mean over busy samples (Hopper or newer)."""
    return _mean_of(_busy(m), lambda sample: sample.sm_occupancy, "SM occupancy", "Run on a Hopper or newer GPU.")


@metric("1", "tensor cores active")
def tensor_active(m: Metrics) -> float:
    """Share of cycles in which tensor cores were active, mean over busy samples (Hopper or newer)."""
    return _mean_of(_busy(m), lambda sample: sample.tensor_active, "Tensor activity", "Run on a Hopper or newer GPU.")


@metric("1", "memory bandwidth in use")
def dram_active(m: Metrics) -> float:
    """Share of peak memory bandwidth in use, mean over busy samples (Hopper or newer)."""
    return _mean_of(_busy(m), lambda sample: sample.dram_active, "DRAM activity", "Run on a Hopper or newer GPU.")


@metric(None)
def throttled_gpu(m: Metrics) -> Gpu:
    """The GPU that heat or its power supply slowed the longest; of equals, the one with the lowest clock."""
    gpus = {gpu.index: gpu for gpu in m.profile.gpus}
    busy: dict[int, list[GpuSample]] = {}
    for sample in _busy(m):
        if sample.gpu in gpus and sample.throttle is not None:
            busy.setdefault(sample.gpu, []).append(sample)
    candidates = [i for i in gpus if i in busy]
    if not candidates:
        raise Missing(
            "Throttle reasons were not sampled", "Run on a GPU whose driver reports clocks event reasons.", gpu_need(m)
        )
    return gpus[min(candidates, key=lambda i: (-_throttled_share(busy[i], gpus[i]), _mean_clock(busy[i])))]


@metric("1", "GPU clock over its maximum")
def sm_clock_ratio(m: Metrics) -> float:
    """Clock of the most throttled GPU while busy, over its maximum."""
    gpu = m[throttled_gpu]
    if not gpu.sm_clock_max:
        raise Missing("The GPU's highest clock is unknown", "Run with a driver that reports it.")
    samples = [sample for sample in _busy(m) if sample.gpu == gpu.index]
    return _mean_of(samples, lambda sample: sample.sm_clock, "The GPU's clock") / gpu.sm_clock_max


@metric("1", "share of time slowed by heat or power brake")
def thermal_throttle_share(m: Metrics) -> float:
    """Share of busy samples in which heat or the power brake slowed the most throttled GPU (bits 0x20, 0x40, 0x80).

    Merged samples keep only that a reason occurred: all of them count if their mean clock is low too, and the power cap
    cannot be why; else one does.
    """
    gpu = m[throttled_gpu]
    return _throttled_share([s for s in _busy(m) if s.gpu == gpu.index and s.throttle is not None], gpu)


@metric(None)
def throttle_reasons(m: Metrics) -> tuple[str, ...]:
    """Every limit on the clock of the most throttled GPU that was seen while it was busy."""
    seen = 0
    for sample in _busy(m):
        if sample.gpu == m[throttled_gpu].index:
            seen |= sample.throttle or 0
    return tuple(name for bit, name in REASONS.items() if seen & bit)


@metric("1", "GPU power over its limit")
def power_ratio(m: Metrics) -> float:
    """Power drawn while busy over the limit, mean over GPUs."""
    limits = {gpu.index: gpu.power_limit for gpu in m.profile.gpus}

    def ratio(sample: GpuSample) -> float | None:
        limit = limits.get(sample.gpu)
        return sample.power / limit if sample.power is not None and limit else None

    return _mean_of(_busy(m), ratio, "GPU power")


@metric("1", "PCIe link speed over its maximum")
def pcie_ratio(m: Metrics) -> float:
    """Width times speed of the PCIe link under load over its maximum: of the GPU with the worst, at its best moment."""
    best: dict[int, float] = {}
    limits = {gpu.index: (gpu.pcie_generation_max, gpu.pcie_width_max) for gpu in m.profile.gpus}
    for sample in _busy(m):
        generation, width = limits.get(sample.gpu, (None, None))
        if None in (generation, width, sample.pcie_generation, sample.pcie_width):
            continue
        now = (sample.pcie_width or 0) * 2.0 ** (
            sample.pcie_generation or 0
        )  # a generation doubles the speed of a lane
        best[sample.gpu] = max(best.get(sample.gpu, 0.0), now / ((width or 1) * 2.0 ** (generation or 0)))
    if not best:
        raise Missing("The PCIe link was not sampled", _NO_GPU.remedy)
    return min(best.values())


@metric("W", "GPU power")
def gpu_power(m: Metrics) -> float:
    """Mean power of all GPUs together."""
    by_gpu: dict[int, list[GpuSample]] = {}
    for sample in _samples(m):
        by_gpu.setdefault(sample.gpu, []).append(sample)
    return sum(_mean_of(samples, lambda sample: sample.power, "GPU power") for samples in by_gpu.values())


@metric("J", "GPU energy")
def gpu_energy(m: Metrics) -> float:
    """Energy all GPUs used from the first to the last sample of the run."""
    counters: dict[int, list[float]] = {}
    for sample in _of_the_run(m):
        if sample.energy is not None:
            counters.setdefault(sample.gpu, []).append(sample.energy)
    if not counters:
        raise Missing("GPU energy was not read", "Run on a Volta or newer data-centre GPU.")
    return sum(max(values) - min(values) for values in counters.values())


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


def _of_the_run(m: Metrics) -> list[GpuSample]:
    """Without the GPUs on which the driver knows of no memory of the run: others may be at work there.

    Where it knows of none on any (CUDA's MPS hides its clients) all count.
    """
    samples = m.profile.gpu_samples
    if not samples or m[on_cpu]:
        raise Missing(_NO_GPU.what, _NO_GPU.remedy, gpu_need(m))
    used = {sample.gpu for sample in samples if sample.process_memory is None or sample.process_memory > 0}
    return [sample for sample in samples if not used or sample.gpu in used]


def _samples(m: Metrics) -> list[GpuSample]:
    """Those of the steady part of the run; all, if it was too short for any."""
    samples = _of_the_run(m)
    start, end = m[steady_window]
    return [sample for sample in samples if start <= sample.time <= end] or samples


def is_busy(sample: GpuSample) -> bool:
    """By its utilization or, where that is none (MIG), its SM activity."""
    return (sample.utilization or sample.sm_active or 0.0) >= BUSY


def _busy(m: Metrics) -> list[GpuSample]:
    return m[busy_samples]


@metric(None)
def busy_samples(m: Metrics) -> list[GpuSample]:
    """Samples of GPUs that were busy. Without utilization (MIG), SM activity tells; one with neither is not known to
    be busy."""
    busy = [sample for sample in _samples(m) if is_busy(sample)]
    if not busy:
        raise Missing("No GPU was busy", "Let the program train on the GPU.")
    return busy


def _mean_of(
    samples: list[GpuSample], value: Callable[[GpuSample], float | None], what: str, remedy: str = _NO_GPU.remedy
) -> float:
    measured = [(number, sample.count) for sample in samples if (number := value(sample)) is not None]
    if not measured:
        raise Missing(f"{what} was not sampled", remedy)
    return sum(number * count for number, count in measured) / sum(count for _, count in measured)


def _mean_clock(samples: list[GpuSample]) -> float:
    clocks = [sample.sm_clock for sample in samples if sample.sm_clock is not None]
    return sum(clocks) / len(clocks) if clocks else float("inf")


def _throttled_share(samples: list[GpuSample], gpu: Gpu) -> float:
    throttled = 0
    for sample in samples:
        reasons = sample.throttle or 0
        if reasons & THERMAL:
            slow = gpu.sm_clock_max and sample.sm_clock is not None and sample.sm_clock < SLOWED * gpu.sm_clock_max
            throttled += sample.count if slow and not reasons & POWER_CAP else 1
    return throttled / sum(sample.count for sample in samples)


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
