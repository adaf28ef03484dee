"""The GPUs and their work in the profiler windows: kernels, and idle time before them."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.operators import computing_kernels, products, shaped_operators
from advisor.metrics.settings import flags, is_trace, no_gpu, no_window, on_cpu, primary_rank
from advisor.metrics.step import exposed_comm_fraction, gpu_windows, require_kernel_times, steady_steps, unprofiled
from advisor.metrics.weighted import column_mean
from advisor.runs.profile import Rank
from profiler.grouping import totals
from profiler.schema import DeviceFact, Gpu, Kernel, Window

EVENT = 1e-6
"""Seconds that the profiler delays the host for each event of a trace (assumption)."""
GRAPHS = 1.5
"""Kernels per launch call above which graphs are replayed."""
MOST_DELAYED = 0.5
"""Largest share of the host's enqueue time that the profiler causes: at most it halves the host's pace (assumption)."""
_LONGER = "Record for longer: later windows may contain some."
FEW_CONVOLUTIONS = 0.1
"""Share of all matmul time up to which convolutions hardly change the rate (assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The GPUs of the job; if they differ, the one that the primary rank trains on."""

    name: str
    capability: tuple[int, int] | None
    memory_total: int
    """Bytes of memory; 0 if the driver does not report them."""
    count: int
    """GPUs visible to the primary rank or sampled in the whole job, whichever is more."""
    multiprocessors: int | None = None
    sm_clock_max: float | None = None
    """Highest SM clock in MHz, from NVML."""
    bandwidth: float | None = None
    """Memory bandwidth in bytes/s, from NVML's bus width and memory clock."""
    is_amd: bool = False
    """Whether torch is built for ROCm; the capability is then AMD's own."""


@metric(None)
def device(m: Metrics) -> Device:
    """The GPUs' name, compute capability, memory and number."""
    rank = m[primary_rank]
    count = max(len(rank.devices), len(m.profile.gpus))
    if not count or m[on_cpu]:
        raise no_gpu(m, "The GPU model was not recorded")
    fact = _trained_on(rank)
    gpu = m.profile.gpu_of(fact) if fact else m.profile.gpus[0]
    board = fact or gpu
    assert board is not None
    return Device(
        name=board.name,
        capability=board.capability,
        memory_total=board.memory_total,
        count=count,
        multiprocessors=fact.multiprocessors if fact else None,
        sm_clock_max=gpu.sm_clock_max if gpu else None,
        bandwidth=_bandwidth(gpu) if gpu else None,
        is_amd=rank.process.hip is not None or board.name.startswith("AMD"),
    )


def _trained_on(rank: Rank) -> DeviceFact | None:
    """Return the device that holds most of the rank's tensors; the first if memory was not measured."""
    fullest = max(rank.memory_peaks, key=lambda peak: peak.allocated_peak, default=None)
    devices = [fact for fact in rank.devices if fullest is not None and fact.id == fullest.id]
    return next(iter(devices or rank.devices), None)


def _bandwidth(gpu: Gpu) -> float | None:
    """Return the memory bandwidth in bytes/s; None if NVML does not report its parts.

    It is two transfers per cycle of the memory clock, as NVML counts cycles, times the width of the bus.
    """
    if not gpu.memory_clock_max or not gpu.memory_bus_width:
        return None
    return 2 * gpu.memory_clock_max * 1e6 * gpu.memory_bus_width / 8


@metric(None)
def compute_capability(m: Metrics) -> tuple[int, int]:
    """Compute capability of the GPUs."""
    reason = f"The compute capability of {m[device].name} is unknown"
    return known(m[device].capability, reason, "Record with a program that uses torch.cuda.")


@metric("1", "share of time the GPU is busy")
def gpu_busy_fraction(m: Metrics) -> float:
    """Share of a steady step in which a kernel runs, from the profiler windows."""
    return min(1.0, _sum(m, "busy") / unprofiled(m, _windows(m)))


@metric("1", "share of time the GPU computes")
def gpu_computing_fraction(m: Metrics) -> float:
    """Share of a steady step in which a kernel other than a collective runs."""
    return max(0.0, m[gpu_busy_fraction] - (m.get(exposed_comm_fraction) or 0.0))


@metric("1", "share of time the GPU waits for launches")
def launch_bound_index(m: Metrics) -> float:
    """Idle time due to late kernel launches, as a share of the time in which the GPU does not wait for anything else.

    Waits for data, synchronization and collectives are excluded, and so are gaps of more than a millisecond in which
    the host launches nothing. Steps in a window take longer than steady steps because the profiler delays the host;
    that difference is subtracted from both. An imported trace has no steps outside the profiler; there, a microsecond
    per event is subtracted.
    """
    waits = sum(_sum(m, name) for name in ("idle_data", "idle_sync"))
    collectives = sum(window.communication_exposed or 0.0 for window in _windows(m))
    stalls = sum(window.idle_stalled or 0.0 for window in _windows(m))
    late_launches = _sum(m, "idle_launch") - stalls
    slowdown = _slowed(m)
    if m.get(is_trace):
        slowdown = min(late_launches, _delayed(m))
    rest = _sum(m, "duration") - slowdown - waits - collectives - stalls
    if rest <= 0:
        raise Missing("The GPU only waits in the windows", "Fix the waiting first, then record again.")
    return max(0.0, late_launches - slowdown) / rest


@metric("1", "share of the step in which the host launches nothing")
def host_stall_fraction(m: Metrics) -> float:
    """Share of a steady step in gaps of more than a millisecond in which the GPU is idle because the host launches
    nothing.

    Waiting for data and for the GPU itself is excluded. The cause is other work of the host, which a CUDA graph or
    torch.compile does not remove.
    """
    return _sum(m, "idle_stalled") / unprofiled(m, _windows(m))


@metric("1", "share of the step in which the GPU waits for memory to be allocated")
def allocation_stall_fraction(m: Metrics) -> float:
    """Share of a steady step in which the GPU is idle while the host allocates or frees device memory."""
    return _sum(m, "idle_allocating") / unprofiled(m, _windows(m))


@metric("1", "share of the step in which the GPU is idle although work is queued")
def idle_queued_fraction(m: Metrics) -> float:
    """Share of the profiler windows in which nothing runs on the GPU although its next work was launched in time."""
    require_kernel_times(m)
    facts = [fact for fact in m[primary_rank].traces if fact.seconds and "idle_queued" in fact.parts]
    if not facts:
        raise no_window(m)
    return sum(fact.parts["idle_queued"] for fact in facts) / sum(fact.seconds for fact in facts)


@metric("us", "idle time before a kernel that was queued")
def idle_queued_us(m: Metrics) -> float:
    """Mean time per kernel in which the GPU is idle although work is queued, in microseconds."""
    seconds = m[idle_queued_fraction] * _sum(m, "duration")
    return 1e6 * seconds / max(1.0, _sum(m, "kernels"))


@metric("s", "host time to launch a step")
def host_launch(m: Metrics) -> float:
    """Host seconds to launch the GPU work of a step; a faster GPU cannot make the step shorter than this.

    They come from the steps of a trace, otherwise from the profiler windows, minus the time by which the profiler slows
    down a step.
    """
    mean = column_mean(m[steady_steps], "host_launch")
    if mean is None:
        return max(0.0, _sum(m, "host_launch") - _slowed(m)) / _sum(m, "steps")
    return max(0.0, mean - (_delayed(m) / _sum(m, "steps") if m.get(is_trace) else 0.0))


@metric("count", "kernels in the trace")
def traced_kernels(m: Metrics) -> int:
    """GPU kernels in the analyzed steps of an imported trace."""
    if not m[is_trace]:
        raise Missing("This is not a trace with GPU work", "Nothing to do: steps are counted instead.")
    return round(_sum(m, "kernels"))


@metric("count")
def kernels_per_step(m: Metrics) -> float:
    """GPU kernels launched per step."""
    return _sum(m, "kernels") / _sum(m, "steps")


@metric(None)
def replays_graphs(m: Metrics) -> bool:
    """Whether the program replays CUDA graphs: a call then launches many kernels."""
    launches = sum(fact.launches.calls for fact in m[primary_rank].traces if fact.launches)
    calls = known(launches or None, "No launch was recorded", "Record for longer: profiler windows show them.")
    return _sum(m, "kernels") > GRAPHS * calls


@metric("us", "median kernel duration")
def median_kernel_us(m: Metrics) -> float:
    """Median duration of a kernel in microseconds; with several windows, the mean of their medians."""
    lengths = [window.median_kernel for window in _windows(m) if window.median_kernel is not None]
    if not lengths:
        raise no_window(m)
    return 1e6 * sum(lengths) / len(lengths)


@metric("1", "share of GPU time in matmuls")
def matmul_share(m: Metrics) -> float:
    """Share of GPU-busy time in matmuls and convolutions."""
    return _kernel_share(m, lambda kernel: kernel.kind in _MATMUL)


@metric("1", "multiprocessors that kernels can fill")
def reached_multiprocessors(m: Metrics) -> float:
    """Share of the multiprocessors for which kernels have blocks: mean over the time of computing kernels.

    It comes from Kineto's "blocks per SM", at most 1 per kernel, and replaces SM activity if no counter measures that.
    """
    kernels = [kernel for kernel in _kernels(m) if kernel.reached is not None]
    total = sum(kernel.total for kernel in kernels)
    if total < MOST_TIME * sum(kernel.total for kernel in _kernels(m)):
        raise Missing(
            "The profiler does not report how many blocks the kernels have", "Nothing to do: only CUPTI reports it."
        )
    return sum((kernel.reached or 0.0) * kernel.total for kernel in kernels) / total


@metric("1", "share of GPU time in convolutions")
def conv_share(m: Metrics) -> float:
    """Share of GPU-busy time in convolutions, except depthwise ones, which are memory-bound."""
    return _kernel_share(m, lambda kernel: kernel.kind == "convolution")


@metric("1", "share of GPU time converting the image layout")
def layout_share(m: Metrics) -> float:
    """Share of GPU-busy time in cuDNN's and MIOpen's conversions between NCHW and NHWC."""
    return _kernel_share(m, lambda kernel: any(name in kernel.name.lower() for name in _LAYOUT))


@metric("1", "share of GPU time in memory-bound kernels")
def membound_share(m: Metrics) -> float:
    """Share of GPU-busy time in memory-bound kernels.

    These are elementwise, normalization, softmax, loss, reduction, layout and copy kernels, but not lookups in
    embedding tables: these are neither fused nor cast.
    """
    return _kernel_share(m, lambda kernel: kernel.kind in _MEMBOUND and "embedding" not in kernel.name.lower())


@metric(None)
def is_compiled(m: Metrics) -> bool:
    """Whether the model is compiled by torch.compile.

    The program's settings show it; in a trace, the names of Inductor's kernels do.
    """
    settings = m.get(flags)
    if settings is None and m[is_trace]:
        return any(kernel.name.startswith("triton_") for kernel in _kernels(m))
    return m[flags].compile


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
    """Share of matmul and convolution time by dtype. The dtype comes from the kernel's name, or is "unknown"."""
    matmuls = (kernel for kernel in _kernels(m) if kernel.kind in _MATMUL)
    seconds = totals(matmuls, lambda kernel: kernel.dtype or "unknown")
    total = sum(seconds.values())
    return {dtype: part / total for dtype, part in seconds.items()} if total else {}


@metric("1", "share of GPU time in FP32 matmuls")
def fp32_matmul_share(m: Metrics) -> float:
    """Share of GPU-busy time in matmuls and convolutions in fp32 or TF32."""
    return _dtype_share(m, lambda kernel: kernel.kind in _MATMUL and kernel.dtype in ("fp32", "tf32"))


@metric("1", "share of GPU time in FP64")
def fp64_share(m: Metrics) -> float:
    """Share of GPU-busy time in kernels that compute in fp64."""
    return _kernel_share(m, lambda kernel: _FP64.search(kernel.name) is not None)


@metric("1", "share of GPU time in FP16 matmuls or convolutions")
def fp16_matmul_share(m: Metrics) -> float:
    """Share of GPU-busy time in matmuls and convolutions in fp16."""
    return _dtype_share(m, lambda kernel: kernel.kind in _MATMUL and kernel.dtype == "fp16")


@metric("1", "share of GPU time in BF16 matmuls")
def bf16_gemm_share(m: Metrics) -> float:
    """Share of GPU-busy time in bf16 matmuls, excluding convolutions."""
    return _dtype_share(m, _is_bf16_gemm)


@metric("us", "mean duration of a BF16 matmul")
def bf16_gemm_us(m: Metrics) -> float:
    """Mean duration of a bf16 matmul in microseconds."""
    matmuls = [kernel for kernel in _kernels(m) if _is_bf16_gemm(kernel)]
    calls = sum(kernel.calls for kernel in matmuls)
    if not calls:
        raise Missing("No bf16 matmul was recorded", "Nothing to do, unless the program computes in bf16.")
    return 1e6 * sum(kernel.total for kernel in matmuls) / calls


@metric("1", "share of GPU time in FP32 matmuls or convolutions without tensor cores")
def simt_fp32_matmul_share(m: Metrics) -> float:
    """Share of GPU-busy time in fp32 matmuls and convolutions that use no tensor cores."""
    return _dtype_share(m, lambda kernel: kernel.kind in _MATMUL and _is_simt_fp32(kernel))


@metric("1", "share of GPU time in FP32 matmuls without tensor cores")
def simt_fp32_gemm_share(m: Metrics) -> float:
    """Share of GPU-busy time in fp32 matmuls that use no tensor cores, excluding convolutions.

    Convolutions may use TF32 by default, so a setting does not help those that run without tensor cores.
    """
    return _dtype_share(m, lambda kernel: kernel.kind == "matmul" and _is_simt_fp32(kernel))


@metric("FLOP/s", "speed of matmuls")
def achieved_matmul_flops(m: Metrics) -> float:
    """FLOP/s that matmuls reach, from the windows that recorded shapes."""
    convolution_share = m[conv_share]
    if convolution_share > FEW_CONVOLUTIONS * m[matmul_share]:
        raise Missing(
            "The operations of convolutions are not counted", "Nothing to do: the GPU's typical rate is assumed."
        )
    matmuls = m[products]
    seconds = sum(product.seconds for product in matmuls)
    if m[shaped_operators].device != "cuda" or seconds <= 0:
        raise Missing("No matmul of known size was recorded", "Nothing to do: the GPU's typical rate is assumed.")
    return sum(product.flop * product.calls for product in matmuls) / seconds


@metric("1", "share of GPU time in the loss")
def cross_entropy_share(m: Metrics) -> float:
    """Share of GPU-busy time in cross-entropy, forward and backward.

    This is the time of the log-softmax and the negative log-likelihood.
    """
    return _kernel_share(m, lambda kernel: kernel.kind == "loss")


@metric("1", "share of the copying time for pageable memory")
def h2d_pageable_share(m: Metrics) -> float:
    """Share of the exposed host-to-device copy time that is spent on pageable memory."""
    copies = _sum(m, "h2d")
    return _sum(m, "h2d_pageable") / copies if copies > 0 else 0.0


_MATMUL = ("matmul", "convolution")
MOST_TIME = 0.8
"""Share of the kernels' time for which blocks must be known."""
MOST_UNKNOWN = 0.1
"""Largest share of GPU time in matmuls of unknown dtype: half of the least share that a rule acts on (assumption)."""
_MEMBOUND = ("elementwise", "normalization", "loss", "reduction", "layout", "copy")
_FP64 = re.compile(r"(?<!optional)<double\b|dgemm|d884gemm|Cijk_\w+_DB?_")
"""Names of ATen, cuBLAS and hipBLAS kernels instantiated for fp64; the type of an argument does not count."""
_LAYOUT = ("nchwtonhwc", "nhwctonchw", "batched_transpose", "transpose_nchw", "transpose_cnhw")


def _is_bf16_gemm(kernel: Kernel) -> bool:
    return kernel.kind == "matmul" and kernel.dtype == "bf16"


def _is_simt_fp32(kernel: Kernel) -> bool:
    return kernel.dtype == "fp32" and kernel.tensor_cores is not True


def _windows(m: Metrics) -> list[Window]:
    require_kernel_times(m)
    windows = gpu_windows(m)
    if not windows:
        raise no_window(m)
    return windows


def _slowed(m: Metrics) -> float:
    """Return the seconds by which the profiler lengthens the windows' steps."""
    return max(0.0, _sum(m, "duration") - unprofiled(m, _windows(m)))


def _delayed(m: Metrics) -> float:
    """Return the seconds by which recording a trace delayed the host, in all of its steps."""
    launch_seconds = [window.host_launch for window in _windows(m) if window.host_launch is not None]
    delay = EVENT * sum(window.events for window in _windows(m))
    return min(delay, MOST_DELAYED * sum(launch_seconds)) if launch_seconds else delay


def _sum(m: Metrics, name: str) -> float:
    values = [value for window in _windows(m) if (value := getattr(window, name)) is not None]
    return float(sum(known(values or None, "The profiler windows do not contain this", _LONGER)))


def _kernels(m: Metrics) -> list[Kernel]:
    """Return the kernels that compute, without collectives and host copies, which mostly run alongside."""
    require_kernel_times(m)
    kernels = computing_kernels(m[primary_rank])
    if not kernels:
        raise no_window(m)
    dtypes: dict[str, set[str]] = {}
    for kernel in kernels:
        if kernel.dtype:  # some have a dtype only in windows with shapes
            dtypes.setdefault(kernel.name, set()).add(kernel.dtype)
    return [
        replace(kernel, dtype=next(iter(dtypes[kernel.name])))
        if kernel.dtype is None and len(dtypes.get(kernel.name, ())) == 1
        else kernel
        for kernel in kernels
    ]


def _dtype_share(m: Metrics, wanted: Callable[[Kernel], bool]) -> float:
    """Return the share of the wanted kernels.

    Raises:
        Missing: matmuls of unknown dtype take long enough to matter.
    """
    unknown_share = _kernel_share(
        m, lambda kernel: kernel.kind in _MATMUL and kernel.dtype is None and kernel.tensor_cores is not False
    )
    if unknown_share > MOST_UNKNOWN:
        raise Missing(
            f"Matmuls of unknown dtype take {unknown_share:.0%} of the GPU's time",
            "Record for longer, or with a larger --budget: windows with shapes show it.",
        )
    return _kernel_share(m, wanted)


def _kernel_share(m: Metrics, wanted: Callable[[Kernel], bool]) -> float:
    kernels = _kernels(m)
    total = sum(kernel.total for kernel in kernels)
    if total <= 0:
        raise Missing("The recorded kernels took no time", _LONGER)
    return sum(kernel.total for kernel in kernels if wanted(kernel)) / total
