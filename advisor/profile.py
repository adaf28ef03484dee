"""A read-only, typed view of one run: every node's tables, ranks side by side."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.clocks import OWN, Clock
from profiler.schema import (
    Batch,
    CallFact,
    DdpFact,
    DeviceFact,
    ErrorFact,
    FlagsFact,
    Gpu,
    GpuSample,
    HostSample,
    Kernel,
    LoaderFact,
    MatmulFact,
    MemoryFact,
    MemorySample,
    ModelFact,
    Operator,
    OptimizerFact,
    OutputFact,
    PaddingFact,
    Problem,
    Process,
    RegionFact,
    Run,
    ScalerFact,
    SchedulingFact,
    Sketch,
    Step,
    ThreadsFact,
    TrialFact,
    Window,
)
from profiler.store import Stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One training process, its DataLoader workers, and what the agent saw in them."""

    process: Process
    workers: tuple[Process, ...] = ()
    steps: tuple[Step, ...] = ()
    batches: tuple[Batch, ...] = ()
    memory: tuple[MemorySample, ...] = ()
    windows: tuple[Window, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    operators: tuple[Operator, ...] = ()
    sketches: tuple[Sketch, ...] = ()
    loaders: tuple[LoaderFact, ...] = ()
    models: tuple[ModelFact, ...] = ()
    optimizers: tuple[OptimizerFact, ...] = ()
    calls: tuple[CallFact, ...] = ()
    flags: FlagsFact | None = None
    devices: tuple[DeviceFact, ...] = ()
    memory_peaks: tuple[MemoryFact, ...] = ()
    scaler: ScalerFact | None = None
    trial: TrialFact | None = None
    error: ErrorFact | None = None
    output: OutputFact | None = None
    regions: tuple[RegionFact, ...] = ()
    worker_regions: tuple[RegionFact, ...] = ()
    """Of all its workers, each with its own."""
    ddp: tuple[DdpFact, ...] = ()
    paddings: tuple[PaddingFact, ...] = ()
    matmul: MatmulFact | None = None
    threads: ThreadsFact | None = None
    scheduling: SchedulingFact | None = None
    host: str | None = None
    """Of its recording."""
    clock: Clock = OWN
    """That of its recording, against the first rank's: for times that are shown side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A run. `ranks` are ordered by rank; processes that imported torch but never made a step are left out
    unless there is no other."""

    runs: tuple[Run, ...]
    ranks: tuple[Rank, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    gpu_samples: tuple[GpuSample, ...] = ()
    host_samples: tuple[HostSample, ...] = ()
    stretches: Stretches | None = None
    """Which steps of the ranks beside the primary were read; None: all. Of many ranks no more is known than they are
    compared by."""
    problems: tuple[Problem, ...] = ()
