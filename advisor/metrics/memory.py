"""What fills GPU memory: the device of the primary rank that came closest to full."""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.gpu import device
from advisor.metrics.settings import gpu_need, primary_rank
from advisor.metrics.step import steady_window
from advisor.models.memory import FILL
from profiler.schema import GpuSample, MemoryFact, MemorySample

_REMEDY = "Record a training on a CUDA GPU, for some seconds."


@metric(None)
def memory_peak(m: Metrics) -> MemoryFact:
    """What memory was made of at the peak of a step."""
    peaks = m[primary_rank].memory_peaks
    if not peaks:
        raise Missing("The parts of GPU memory were not measured", _REMEDY, gpu_need(m))
    return max(peaks, key=lambda fact: fact.allocated_peak)


@metric("B", "memory of the parameters")
def mem_params(m: Metrics) -> int:
    """Parameters."""
    return m[memory_peak].parameters


@metric("B", "memory of the gradients")
def mem_grads(m: Metrics) -> int:
    """Gradients."""
    return m[memory_peak].gradients


@metric("B", "memory of the optimizer state")
def mem_optim(m: Metrics) -> int:
    """State of the optimizers."""
    return m[memory_peak].optimizer


@metric("B", "memory of the activations")
def mem_activations(m: Metrics) -> int:
    """What was allocated at the peak beyond parameters, gradients and optimizer state: activations and workspace."""
    return max(0, m[memory_peak].allocated_peak - m[mem_params] - m[mem_grads] - m[mem_optim])


@metric("B", "GPU memory outside PyTorch")
def mem_nontorch(m: Metrics) -> int:
    """Held on the GPU outside torch's allocator: CUDA context, libraries, collectives."""
    index = m[memory_peak].id
    uuid = next((device.uuid for device in m[primary_rank].devices if device.id == index), None)
    gpu = next((gpu.index for gpu in m.profile.gpus if uuid is not None and gpu.uuid == uuid), None)
    used = [held for sample in m.profile.gpu_samples if sample.gpu == gpu and (held := _held(sample)) is not None]
    if gpu is None or not used:
        raise Missing("The GPU's memory was not sampled", "Run with an NVIDIA driver and nvidia-ml-py.")
    return max(0, max(used) - max(sample.reserved for sample in _samples(m)))


@metric("B", "peak of allocated GPU memory")
def mem_peak_allocated(m: Metrics) -> int:
    """Most bytes in tensors at once."""
    return max(sample.allocated_peak for sample in _samples(m))


@metric("B", "peak of reserved GPU memory")
def mem_peak_reserved(m: Metrics) -> int:
    """Most bytes torch's allocator held at once."""
    return max(sample.reserved_peak for sample in _samples(m))


@metric("1", "share of the reserved GPU memory no tensor used")
def fragmentation_ratio(m: Metrics) -> float:
    """Share of the reserved memory that no tensor used, peak against peak."""
    reserved = m[mem_peak_reserved]
    return max(0.0, 1.0 - m[mem_peak_allocated] / reserved) if reserved else 0.0


@metric("1", "share of the GPU memory left free")
def mem_headroom(m: Metrics) -> float:
    """Share of the device that stayed free at the peak."""
    index = m[memory_peak].id
    total = next((device.memory_total for device in m[primary_rank].devices if device.id == index), 0)
    if not total:
        raise Missing("The size of the GPU's memory is unknown", _REMEDY)
    return 1.0 - (m[mem_peak_reserved] + m[mem_nontorch]) / total


@metric("count", "allocations that were retried")
def alloc_retries(m: Metrics) -> int:
    """How often an allocation failed at first, once training was steady, and the allocator gave back its cache."""
    return _since_steady(m, "retries")


@metric("count", "allocations that failed")
def oom_count(m: Metrics) -> int:
    """How often an allocation failed for good once training was steady.

    Before that it may be meant: cuDNN's benchmark tries workspaces that do not fit, a batch-size finder batches.
    """
    return _since_steady(m, "ooms")


@metric(None)
def ran_out_of_memory(m: Metrics) -> bool:
    """An allocation that failed, on a GPU or in the host's memory, has ended the program."""
    errors = [rank.error for rank in m.profile.ranks if rank.error is not None]
    return any(
        error.type.endswith(("OutOfMemoryError", "MemoryError")) or "can't allocate memory" in (error.message or "")
        for error in errors
    )


@metric(None)
def memory_pressure(m: Metrics) -> bool:
    """Memory holds the run back: it ran out, allocations were retried, or it is scarce and more is wanted."""
    if m[oom_count] > 0 or m[alloc_retries] > 0:
        return True
    return m.goals.more_memory and 1 - m[mem_headroom] > FILL


def used(m: Metrics) -> float:
    """Bytes of the device that were in use at the peak."""
    return (1 - m[mem_headroom]) * m[device].memory_total


def filled(m: Metrics, grown: float) -> float:
    """Share of the device that the peak would fill with so many bytes more."""
    return 1 - m[mem_headroom] + grown / m[device].memory_total


def _samples(m: Metrics) -> list[MemorySample]:
    """Those of the fullest device."""
    samples = m[primary_rank].memory
    if not samples:
        raise Missing("torch's CUDA allocator was not sampled", _REMEDY, gpu_need(m))
    fullest = max(samples, key=lambda sample: sample.reserved_peak).device
    return [sample for sample in samples if sample.device == fullest]


def _since_steady(m: Metrics, counter: str) -> int:
    """By how much a counter has grown since the first steady step; since the start if there is none."""
    window = m.get(steady_window)
    counts = [(sample.time, int(getattr(sample, counter))) for sample in _samples(m)]
    before = max((count for time, count in counts if window is not None and time <= window[0]), default=0)
    return max(count for _, count in counts) - before


def _held(sample: GpuSample) -> int | None:
    """By the run's own processes where the driver tells, else by anyone."""
    return sample.process_memory if sample.process_memory is not None else sample.memory_used
