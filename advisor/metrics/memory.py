"""The contents of GPU memory, for the fullest device of the primary rank."""

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.gpu import device
from advisor.metrics.settings import gpu_need, primary_rank, require_sized
from advisor.metrics.step import steady_window
from advisor.models.memory import FILL
from profiler.schema import MemoryFact, MemorySample

_REMEDY = "Record a training run on a CUDA GPU, for a few seconds."


@metric(None)
def memory_peak(m: Metrics) -> MemoryFact:
    """Memory at the peak of a step, by content."""
    fullest = max(m[primary_rank].memory_peaks, key=lambda fact: fact.allocated_peak, default=None)
    return known(fullest, "The parts of GPU memory were not measured", _REMEDY, gpu_need(m))


def _parts(m: Metrics) -> MemoryFact:
    peak, rank = m[memory_peak], m[primary_rank]
    require_sized((*rank.models, *rank.optimizers))
    return peak


@metric("B", "memory of the parameters")
def mem_params(m: Metrics) -> int:
    """Bytes of the parameters."""
    return _parts(m).parameters


@metric("B", "memory of the gradients")
def mem_grads(m: Metrics) -> int:
    """Bytes of the gradients."""
    return _parts(m).gradients


@metric("B", "memory of the optimizer state")
def mem_optim(m: Metrics) -> int:
    """Bytes of optimizer state."""
    return _parts(m).optimizer


@metric("B", "memory of the activations")
def mem_activations(m: Metrics) -> int:
    """Bytes of activations and workspace.

    This is everything allocated at the peak except parameters, gradients and optimizer state.
    """
    return max(0, m[memory_peak].allocated_peak - m[mem_params] - m[mem_grads] - m[mem_optim])


@metric("B", "GPU memory outside PyTorch")
def mem_nontorch(m: Metrics) -> int:
    """Bytes on the GPU outside torch's allocator: CUDA context, libraries, collectives.

    The value comes from NVML. If NVML did not sample the GPU, it comes from the driver (cudaMemGetInfo), which counts
    the memory of every process on the GPU; so does NVML's value if it reports no memory for the run.
    """
    fact = m[memory_peak]
    gpus = {gpu.index for gpu in m.profile.gpus_of(m[primary_rank], (fact.id,))}
    samples = [sample for sample in m.profile.gpu_samples if sample.gpu in gpus]
    # NVML reports none for the run in a container with its own process numbers, and under CUDA MPS.
    by_process = any(sample.process_memory for sample in samples)
    usage = [sample.process_memory if by_process else sample.memory_used for sample in samples]
    if sizes := [size for size in usage if size is not None]:
        return max(0, max(sizes) - max(sample.reserved for sample in _samples(m)))
    if fact.free is None or fact.total is None:
        raise Missing("The GPU's memory was not sampled", "Run with an NVIDIA driver and nvidia-ml-py.")
    return max(0, fact.total - fact.free - fact.reserved)


@metric("B", "peak of allocated GPU memory")
def mem_peak_allocated(m: Metrics) -> int:
    """Peak bytes in tensors."""
    return max(sample.allocated_peak for sample in _samples(m))


@metric("B", "peak of reserved GPU memory")
def mem_peak_reserved(m: Metrics) -> int:
    """Peak bytes held by torch's allocator."""
    return max(sample.reserved_peak for sample in _samples(m))


@metric("1", "share of the reserved GPU memory not used by tensors")
def fragmentation_ratio(m: Metrics) -> float:
    """Share of the reserved memory that no tensor used, calculated from the peaks of reserved and allocated memory."""
    reserved = m[mem_peak_reserved]
    return max(0.0, 1.0 - m[mem_peak_allocated] / reserved) if reserved else 0.0


@metric("1", "share of the GPU memory left free")
def mem_headroom(m: Metrics) -> float:
    """Share of the GPU's memory that was free at the peak."""
    fact = m[memory_peak]
    total = next((device.memory_total for device in m[primary_rank].devices if device.id == fact.id), 0) or fact.total
    if not total:
        raise Missing("The size of the GPU's memory is unknown", _REMEDY)
    return 1.0 - (m[mem_peak_reserved] + m[mem_nontorch]) / total


@metric("count", "allocations that were retried")
def alloc_retries(m: Metrics) -> int:
    """Number of allocations in steady training that failed at first, so the allocator freed its cache and retried."""
    return _since_steady(m, "retries")


@metric("count", "allocations that failed")
def oom_count(m: Metrics) -> int:
    """Number of allocations in steady training that failed even after the allocator freed its cache.

    Earlier failures do not count, because they may be intended: cuDNN's benchmark tries workspaces that do not fit, and
    a batch-size finder tries batches that do not fit.
    """
    return _since_steady(m, "ooms")


@metric(None)
def ran_out_of_memory(m: Metrics) -> bool:
    """Whether a failed allocation, on a GPU or in host memory, ended the program."""
    errors = [rank.error for rank in m.profile.ranks if rank.error is not None]
    return any(
        error.type.endswith(("OutOfMemoryError", "MemoryError")) or "can't allocate memory" in (error.message or "")
        for error in errors
    )


@metric(None)
def memory_pressure(m: Metrics) -> bool:
    """Whether memory limits the run.

    It does if memory ran out, if allocations were retried, or if little is free and a goal needs more.
    """
    if m[oom_count] > 0 or m[alloc_retries] > 0:
        return True
    return m.goals.more_memory and 1 - m[mem_headroom] > FILL


def used(m: Metrics) -> float:
    """Return the bytes of the device in use at the peak."""
    return (1 - m[mem_headroom]) * m[device].memory_total


def filled(m: Metrics, grown: float) -> float:
    """Return the share of the device that the peak would fill with `grown` more bytes."""
    return 1 - m[mem_headroom] + grown / m[device].memory_total


def _samples(m: Metrics) -> list[MemorySample]:
    """Return the samples of the device that `memory_peak` describes; of the fullest one without it."""
    rows = m[primary_rank].memory_samples or None
    samples = known(rows, "torch's CUDA allocator was not sampled", _REMEDY, gpu_need(m))
    peak = m.get(memory_peak)
    own_samples = [sample for sample in samples if peak is not None and sample.device == peak.id]
    fullest = max(samples, key=lambda sample: sample.reserved_peak).device
    return own_samples or [sample for sample in samples if sample.device == fullest]


def _since_steady(m: Metrics, counter: str) -> int:
    """Return the growth of a counter since the first steady step; since the start if there is none."""
    window = m.get(steady_window)
    counts = [(sample.time, int(getattr(sample, counter))) for sample in _samples(m)]
    before = max((count for time, count in counts if window is not None and time <= window[0]), default=0)
    return max(count for _, count in counts) - before
