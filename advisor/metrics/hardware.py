"""NVML samples of the GPUs in the steady part of the run: load, clocks, power, links.

Only GPUs that the program uses count. Unless stated otherwise, only samples in which they were busy count.
"""

import math
from collections.abc import Callable
from operator import attrgetter

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.settings import NVML, gpu_need, no_gpu, on_cpu
from advisor.metrics.step import in_steady_steps
from advisor.metrics.weighted import column_mean, weighted_mean
from advisor.models.gpus import peaks
from advisor.runs.profile import Profile, Rank
from profiler.grouping import grouped
from profiler.schema import Gpu, GpuSample

BUSY = 0.1
"""Share of a sample's period with kernels from which a GPU counts as busy.

Less than that is a stray kernel or a desktop.
"""
SLOWED = 0.9
"""Share of the highest clock below which a merged sample counts as throttled throughout.

The sample must also have seen a throttle reason.
"""
_HOPPER = "Run on a Hopper or newer GPU."
CLOCK_SETTING, POWER_CAP = 0x2, 0x4
"""NVML clocks event reasons: clocks that somebody has set (nvidia-smi -lgc, -ac), and the power limit."""
MOSTLY = 0.5
"""Share of busy samples from which a limit applies to the whole run, not only to peaks."""
THERMAL = 0x20 | 0x40 | 0x80
REASONS = {
    POWER_CAP: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML clocks event reasons (nvml.h) that are limits.

The others are not: idle, application clocks, sync boost, display.
"""


@metric("1", "GPU utilization")
def gpu_utilization(m: Metrics) -> float:
    """Share of the time in which any kernel ran, from NVML; an upper bound for the time that the GPU is busy.

    This is the mean over the GPUs that the program uses.
    """
    return known(column_mean(_samples(m), "utilization"), "GPU utilization was not sampled", NVML)


@metric("1", "SMs active")
def sm_active(m: Metrics) -> float:
    """Share of the time in which a multiprocessor (SM) had work (Hopper or newer).

    This is the mean over multiprocessors and busy samples, or over all samples if no GPU was ever busy.
    """
    samples = m.get(busy_samples) or _samples(m)
    return known(column_mean(samples, "sm_active"), "SM activity was not sampled", _HOPPER)


@metric("1", "SM occupancy")
def sm_occupancy(m: Metrics) -> float:
    """Resident warps divided by the maximum, mean over busy samples (Hopper or newer)."""
    return known(column_mean(m[busy_samples], "sm_occupancy"), "SM occupancy was not sampled", _HOPPER)


@metric("1", "tensor cores active")
def tensor_active(m: Metrics) -> float:
    """Share of cycles in which tensor cores were active, mean over busy samples (Hopper or newer)."""
    return known(column_mean(m[busy_samples], "tensor_active"), "Tensor activity was not sampled", _HOPPER)


@metric("1", "memory bandwidth in use")
def dram_active(m: Metrics) -> float:
    """Share of the peak memory bandwidth in use, mean over busy samples (Hopper or newer)."""
    return known(column_mean(m[busy_samples], "dram_active"), "DRAM activity was not sampled", _HOPPER)


@metric(None)
def throttled_gpu(m: Metrics) -> Gpu:
    """The GPU that heat or its power supply slowed down for the longest time.

    If several are equal, the one with the lowest clock.
    """
    samples_by_gpu = grouped((sample for sample in m[busy_samples] if sample.throttle is not None), attrgetter("gpu"))
    candidates = [gpu for gpu in m.profile.gpus if gpu.index in samples_by_gpu]

    def rank(gpu: Gpu) -> tuple[float, float]:
        samples = samples_by_gpu[gpu.index]
        return -_throttled_share(samples, gpu), column_mean(samples, "sm_clock") or math.inf

    remedy = "Run on a GPU whose driver reports clocks event reasons."
    return known(min(candidates, key=rank, default=None), "Throttle reasons were not sampled", remedy, gpu_need(m))


@metric("1", "GPU clock divided by its maximum")
def sm_clock_ratio(m: Metrics) -> float:
    """Clock of the most throttled GPU while it is busy, divided by its maximum."""
    gpu = m[throttled_gpu]
    highest = known(
        gpu.sm_clock_max or None, "The GPU's highest clock is unknown", "Run with a driver that reports it."
    )
    samples = [sample for sample in m[busy_samples] if sample.gpu == gpu.index]
    return known(column_mean(samples, "sm_clock"), "The GPU's clock was not sampled", NVML) / highest


@metric("1", "share of the time throttled by heat or power brake")
def thermal_throttle_share(m: Metrics) -> float:
    """Share of busy samples in which heat or the power brake slowed down the most throttled GPU.

    The NVML bits are 0x20, 0x40 and 0x80. A row of merged samples shows only that a reason occurred. If its mean clock
    is also low and the power cap cannot be the reason, all of its samples count; otherwise one counts.
    """
    gpu = m[throttled_gpu]
    return _throttled_share(
        [sample for sample in m[busy_samples] if sample.gpu == gpu.index and sample.throttle is not None], gpu
    )


@metric(None)
def throttle_reasons(m: Metrics) -> tuple[str, ...]:
    """All clock limits of the most throttled GPU that were seen while it was busy."""
    mask = 0
    for sample in m[busy_samples]:
        if sample.gpu == m[throttled_gpu].index:
            mask |= sample.throttle or 0
    return tuple(name for bit, name in REASONS.items() if mask & bit)


@metric("1", "GPU power divided by its limit")
def power_ratio(m: Metrics) -> float:
    """Power draw while busy divided by the power limit, mean over GPUs."""
    limits = {gpu.index: gpu.power_limit for gpu in m.profile.gpus}
    shares = [
        (sample.power / limit, sample.count)
        for sample in m[busy_samples]
        if sample.power is not None and (limit := limits.get(sample.gpu))
    ]
    if not shares:
        raise Missing("GPU power was not sampled", NVML)
    return weighted_mean(shares)


@metric("1", "GPU power limit divided by its rated power")
def power_cap(m: Metrics) -> float:
    """Power limit in force divided by the board's rated power on its data sheet, for the GPU with the lowest ratio."""
    indices = {sample.gpu for sample in m[busy_samples]}
    boards = [(gpu, peaks(gpu.name)) for gpu in m.profile.gpus if gpu.index in indices and gpu.power_limit]
    ratios = [(gpu.power_limit or 0.0) / board.watts for gpu, board in boards if board and board.watts]
    remedy = "Nothing to do, unless the power limit was lowered."
    return known(min(ratios, default=None), "The rated power of this GPU is unknown", remedy)


@metric("1", "GPU clock under the power cap divided by its maximum")
def capped_clock_ratio(m: Metrics) -> float:
    """Clock of busy GPUs in samples with the power cap as the reason, divided by the maximum; 1 if there are few such
    samples.
    """
    return _clock_while(m, lambda throttle: bool(throttle & POWER_CAP))


@metric("1", "GPU clock under a clock setting divided by its maximum")
def set_clock_ratio(m: Metrics) -> float:
    """Clock of busy GPUs in samples whose only limit is a clock setting, divided by the maximum; 1 if there are few
    such samples.
    """
    return _clock_while(m, lambda throttle: throttle == CLOCK_SETTING)


def _clock_while(m: Metrics, limits: Callable[[int], bool]) -> float:
    """Return the clock of busy GPUs while these throttle reasons hold, divided by the maximum; 1 if they seldom do."""
    highest = {gpu.index: gpu.sm_clock_max for gpu in m.profile.gpus if gpu.sm_clock_max}
    busy = [sample for sample in m[busy_samples] if sample.throttle is not None and sample.gpu in highest]
    limited_samples = [sample for sample in busy if limits(sample.throttle or 0)]
    if not busy:
        raise Missing("Throttle reasons were not sampled", NVML, gpu_need(m))
    if sum(sample.count for sample in limited_samples) < MOSTLY * sum(sample.count for sample in busy):
        return 1.0
    clocks = [(row.sm_clock / highest[row.gpu], row.count) for row in limited_samples if row.sm_clock is not None]
    if not clocks:
        raise Missing("The GPU's clock was not sampled", NVML)
    return weighted_mean(clocks)


@metric("1", "PCIe link speed divided by its maximum")
def pcie_ratio(m: Metrics) -> float:
    """Width times speed of the PCIe link under load, divided by its maximum: the best sample of the worst GPU."""
    best_ratios: dict[int, float] = {}
    limits = {gpu.index: (gpu.pcie_generation_max, gpu.pcie_width_max) for gpu in m.profile.gpus}
    for sample in m[busy_samples]:
        generation, width = limits.get(sample.gpu, (None, None))
        if None in (generation, width, sample.pcie_generation, sample.pcie_width):
            continue
        bandwidth = (sample.pcie_width or 0) * 2.0 ** (
            sample.pcie_generation or 0
        )  # a generation doubles the speed of a lane
        best_ratios[sample.gpu] = max(
            best_ratios.get(sample.gpu, 0.0), bandwidth / ((width or 1) * 2.0 ** (generation or 0))
        )
    return known(min(best_ratios.values(), default=None), "The PCIe link was not sampled", NVML)


@metric("W", "GPU power")
def gpu_power(m: Metrics) -> float:
    """Mean power of all GPUs together, in watts."""
    by_gpu = grouped(_samples(m), attrgetter("gpu")).values()
    return sum(known(column_mean(samples, "power"), "GPU power was not sampled", NVML) for samples in by_gpu)


@metric("J", "GPU energy")
def gpu_energy(m: Metrics) -> float:
    """Energy that all GPUs used from the first to the last sample of the run, in joules."""
    counters: dict[int, list[float]] = {}
    for sample in _of_the_run(m):
        if sample.energy is not None:
            counters.setdefault(sample.gpu, []).append(sample.energy)
    if not counters:
        raise Missing("GPU energy was not read", "Run on a Volta or newer data center GPU.")
    return sum(max(values) - min(values) for values in counters.values())


def _of_the_run(m: Metrics) -> list[GpuSample]:
    """Return the samples of the GPUs that the run uses; other GPUs may be busy with other work.

    These are the GPUs on which the driver reports memory of the run. If it reports none (in a container with its own
    process numbers, or under CUDA MPS), they are the GPUs on which torch holds memory; if that is unknown, all GPUs.
    """
    samples = m.profile.gpu_samples
    if not samples or m[on_cpu]:
        raise no_gpu(m, "The GPU was not sampled")
    indices = {sample.gpu for sample in samples if sample.process_memory}
    if not indices:
        for rank in m.profile.ranks:
            device_ids = {fact.id for fact in rank.memory_peaks or rank.devices}
            indices |= {gpu.index for gpu in m.profile.gpus_of(rank, device_ids)}
    return [sample for sample in samples if not indices or sample.gpu in indices]


def _samples(m: Metrics) -> list[GpuSample]:
    return in_steady_steps(m, _of_the_run(m))


def is_busy(sample: GpuSample) -> bool:
    """Return whether the GPU was busy, by its utilization or, without one (MIG), its SM activity."""
    return (sample.utilization or sample.sm_active or 0.0) >= BUSY


def busy_clock(profile: Profile, rank: Rank, least: int = 1) -> float | None:
    """Return the mean SM clock in MHz of the rank's GPU while it is busy; None with fewer than `least` samples."""
    indices = {gpu.index for gpu in profile.gpus_of(rank, {fact.id for fact in rank.memory_peaks})}
    # An idle GPU's clock is low on purpose.
    samples = [
        sample for sample in profile.gpu_samples if sample.gpu in indices and sample.sm_clock and is_busy(sample)
    ]
    return column_mean(samples, "sm_clock") if sum(sample.count for sample in samples) >= least else None


@metric(None)
def busy_samples(m: Metrics) -> list[GpuSample]:
    """Samples in which a GPU was busy.

    If NVML reports no utilization (MIG), SM activity decides. A sample with neither does not count as busy.
    """
    return known(
        [sample for sample in _samples(m) if is_busy(sample)] or None,
        f"No sample showed a GPU busy for {BUSY:.0%} of the time",
        "Nothing to do, if the GPU is meant to be idle; otherwise give it more work, or record for longer.",
    )


def _throttled_share(samples: list[GpuSample], gpu: Gpu) -> float:
    throttled_count = 0
    for sample in samples:
        reasons = sample.throttle or 0
        if reasons & THERMAL:
            slow = gpu.sm_clock_max and sample.sm_clock is not None and sample.sm_clock < SLOWED * gpu.sm_clock_max
            throttled_count += sample.count if slow and not reasons & POWER_CAP else 1
    return throttled_count / sum(sample.count for sample in samples)
