"""What NVML saw of the GPUs in the steady part of the run: load, clocks, power, links.

Samples are of the GPUs the program uses; a GPU counts in a moment only if it was busy then, unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.settings import NVML, gpu_need, no_gpu, on_cpu
from advisor.metrics.step import steady_window
from profiler.schema import Gpu, GpuSample

BUSY = 0.1
"""Share of a sample's period with kernels from which the GPU counts as busy: less is a stray kernel or a desktop."""
SLOWED = 0.9
"""Clock over its maximum below which a merged sample that saw a throttle reason counts as throttled throughout."""
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


@metric("1", "GPU utilization")
def gpu_utilization(m: Metrics) -> float:
    """Share of time in which some kernel ran, by NVML: an upper bound of busy. Mean over the GPUs the program uses."""
    return _mean_of(_samples(m), lambda sample: sample.utilization, "GPU utilization")


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
        raise Missing("The PCIe link was not sampled", NVML)
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


def _of_the_run(m: Metrics) -> list[GpuSample]:
    """Without the GPUs on which the driver knows of no memory of the run: others may be at work there.

    Where it knows of none on any (CUDA's MPS hides its clients) all count.
    """
    samples = m.profile.gpu_samples
    if not samples or m[on_cpu]:
        raise no_gpu(m, "The GPU was not sampled")
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
    samples: list[GpuSample], value: Callable[[GpuSample], float | None], what: str, remedy: str = NVML
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
