"""Check the driver and the GPUs, as NVML reports them during a recording."""

import os
import time
from collections.abc import Iterator, Sequence

from advisor.doctor.finding import CheckResult, fix, ok, warning
from advisor.doctor.stack import Torch
from advisor.metrics.settings import AMD, AMD_REMEDY
from advisor.units import size
from profiler.recorder.gpu import GPM_PERIOD, GpuSampler
from profiler.schema import NO_DRIVER, Gpu, GpuSample, Problem

COUNTING = (9, 0)
"""Compute capability from which GPUs have performance counters (GPM)."""


def see() -> tuple[Sequence[Gpu], Sequence[GpuSample], Sequence[Problem]]:
    """Sample each GPU once, as the recorder does; return GPUs, samples and problems."""
    sampler = GpuSampler(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
    try:
        sampler.sample(0.0, ())
        if any(gpu.gpm for gpu in sampler.gpus):
            time.sleep(GPM_PERIOD)
        samples = sampler.sample(2 * GPM_PERIOD, ())
        return sampler.gpus, list(samples), sampler.problems
    finally:
        sampler.close()


def findings(
    gpus: Sequence[Gpu], samples: Sequence[GpuSample], problems: Sequence[Problem], torch: Torch
) -> Iterator[CheckResult]:
    """Yield the findings on the driver, on each GPU, and on values that NVML does not report."""
    if not gpus:
        yield _without(problems, torch)
        return
    first_gpu = gpus[0]
    yield ok(
        "driver", f"{first_gpu.driver or 'of unknown version'}, supports CUDA {first_gpu.cuda_driver or '(unknown)'}"
    )
    for gpu in gpus:
        yield ok(f"GPU {gpu.index}", f"{gpu.name}, {size(gpu.memory_total)}{', a MIG slice' if gpu.mig else ''}")
    for problem in problems:
        sentence, _, remedy = problem.message.partition(". ")
        yield warning("NVML", f"{sentence}.", remedy)
    yield _sampled(samples)
    yield _counters(gpus)


def _without(problems: Sequence[Problem], torch: Torch) -> CheckResult:
    problem = next(iter(problems), Problem(time=0, source="nvml", message="NVML shows no GPU. See nvidia-smi."))
    sentence, _, remedy = problem.message.partition(". ")
    if torch.hip:
        return warning("driver", f"{AMD}.", AMD_REMEDY)
    if problem.code == NO_DRIVER:
        if torch.cuda:
            return warning("driver", f"{sentence}.", "Install the driver, unless you want to train on the CPU.")
        return ok("driver", "No NVIDIA driver: the training runs on the CPU")
    return fix("driver", f"{sentence}.", remedy)


def _sampled(samples: Sequence[GpuSample]) -> CheckResult:
    """Check whether all values that the report needs can be read."""
    columns = ("utilization", "memory_used", "power", "sm_clock")
    missing = sorted({name for sample in samples for name in columns if getattr(sample, name) is None})
    if missing:
        return warning(
            "GPU samples",
            f"NVML does not report {', '.join(missing).replace('_', ' ')}: not measured.",
            "Check nvidia-smi; some boards and virtual GPUs do not report it.",
        )
    return ok("GPU samples", "utilization, memory, power and clocks can be read")


def _counters(gpus: Sequence[Gpu]) -> CheckResult:
    name = "counters (GPM)"
    if all(gpu.gpm for gpu in gpus):
        return ok(name, "SM, tensor core and memory activity can be read")
    if any(gpu.capability is not None and gpu.capability >= COUNTING and not gpu.gpm for gpu in gpus):
        return warning(
            name,
            "The GPU's performance counters cannot be read: SM and tensor core activity are not measured.",
            "Run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0.",
        )
    indices = [str(gpu.index) for gpu in gpus if gpu.gpm]
    if indices:
        return ok(
            name,
            f"SM, tensor core and memory activity can be read on GPU {', '.join(indices)}; older GPUs have no "
            "such counters",
        )
    return ok(name, "No counters before Hopper: SM and tensor core activity are not measured")
