"""A read-only, typed view of one run: every node's tables, with the ranks side by side."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from advisor.runs.clocks import OWN, Clock
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
    Stack,
    Step,
    Sync,
    ThreadsFact,
    TraceFact,
    TrialFact,
    Window,
    WindowsFact,
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
    syncs: tuple[Sync, ...] = ()
    stacks: tuple[Stack, ...] = ()
    """Sampled stacks of the process and of its workers; empty if nobody looked."""
    traces: tuple[TraceFact, ...] = ()
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
    """The regions of all its workers, separate for each."""
    ddp: tuple[DdpFact, ...] = ()
    paddings: tuple[PaddingFact, ...] = ()
    matmul: MatmulFact | None = None
    threads: ThreadsFact | None = None
    scheduling: SchedulingFact | None = None
    window_state: WindowsFact | None = None
    host: str | None = None
    """Host of its recording."""
    clock: Clock = OWN
    """Clock of its recording relative to the first rank's, for times that are shown side by side."""

    @property
    def started(self) -> float:
        """Return when it started, on the clock of all recordings."""
        return self.clock(self.process.started)


def latest(ranks: Iterable[Rank]) -> dict[int, Rank]:
    """Return the process of each rank that started last, by rank; of equal ones, the first."""
    found: dict[int, Rank] = {}
    for rank in sorted(ranks, key=lambda rank: (rank.process.rank, -rank.started)):
        found.setdefault(rank.process.rank, rank)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A run, with `ranks` ordered by rank; of a restarted rank, the last process comes first.

    Processes that imported torch but never made a step are left out unless there is no other.
    """

    runs: tuple[Run, ...]
    ranks: tuple[Rank, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    gpu_samples: tuple[GpuSample, ...] = ()
    host_samples: tuple[HostSample, ...] = ()
    stretches: Stretches | None = None
    """The stretches of steps that were read of the non-primary ranks; None: all.

    Of many ranks, only what is needed to compare them is known.
    """
    problems: tuple[Problem, ...] = ()

    @property
    def imported(self) -> bool:
        """Return whether these are traces that torch.profiler wrote without profile-train, and nothing else."""
        return not self.runs and any(rank.traces for rank in self.ranks)

    def gpu_of(self, device: DeviceFact) -> Gpu | None:
        """Return NVML's record of one of torch's devices; None if it was not sampled.

        The two are matched by UUID because they number GPUs differently. torch leaves out NVML's prefix.
        """
        uuid = bare_uuid(device.uuid or "")
        return next((gpu for gpu in self.gpus if uuid and bare_uuid(gpu.uuid) == uuid), None)


def bare_uuid(uuid: str) -> str:
    """Return a UUID in a form common to torch and NVML: "GPU-8C2F..." and "8c2f..." are the same GPU."""
    return re.sub(r"^(mig-)?(gpu-)?", "", uuid.strip().lower())
