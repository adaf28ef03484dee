"""A read-only, typed view of one run: every node's tables, with the ranks side by side."""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass

from advisor.runs.clocks import OWN, Clock
from profiler import schema
from profiler.store import Stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One training process, its DataLoader workers, and what the agent saw in them."""

    process: schema.Process
    workers: tuple[schema.Process, ...] = ()
    steps: tuple[schema.Step, ...] = ()
    batches: tuple[schema.Batch, ...] = ()
    memory_samples: tuple[schema.MemorySample, ...] = ()
    windows: tuple[schema.Window, ...] = ()
    kernels: tuple[schema.Kernel, ...] = ()
    operators: tuple[schema.Operator, ...] = ()
    syncs: tuple[schema.Sync, ...] = ()
    stacks: tuple[schema.Stack, ...] = ()
    """Sampled stacks of the process and of its workers; empty if none were sampled."""
    traces: tuple[schema.TraceFact, ...] = ()
    sketches: tuple[schema.Sketch, ...] = ()
    loaders: tuple[schema.LoaderFact, ...] = ()
    models: tuple[schema.ModelFact, ...] = ()
    optimizers: tuple[schema.OptimizerFact, ...] = ()
    calls: tuple[schema.CallFact, ...] = ()
    flags: schema.FlagsFact | None = None
    devices: tuple[schema.DeviceFact, ...] = ()
    memory_peaks: tuple[schema.MemoryFact, ...] = ()
    scaler: schema.ScalerFact | None = None
    trial: schema.TrialFact | None = None
    error: schema.ErrorFact | None = None
    output: schema.OutputFact | None = None
    regions: tuple[schema.RegionFact, ...] = ()
    worker_regions: tuple[schema.RegionFact, ...] = ()
    """The regions of all its workers, separate for each."""
    ddp: tuple[schema.DdpFact, ...] = ()
    paddings: tuple[schema.PaddingFact, ...] = ()
    matmul: schema.MatmulFact | None = None
    threads: schema.ThreadsFact | None = None
    scheduling: schema.SchedulingFact | None = None
    window_state: schema.WindowsFact | None = None
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
    processes: dict[int, Rank] = {}
    for rank in sorted(ranks, key=lambda rank: (rank.process.rank, -rank.started)):
        processes.setdefault(rank.process.rank, rank)
    return processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A run, with `ranks` ordered by rank; of a restarted rank, the last process comes first.

    Processes that imported torch but never made a step are left out unless there is no other.
    """

    runs: tuple[schema.Run, ...]
    ranks: tuple[Rank, ...] = ()
    gpus: tuple[schema.Gpu, ...] = ()
    gpu_samples: tuple[schema.GpuSample, ...] = ()
    host_samples: tuple[schema.HostSample, ...] = ()
    stretches: Stretches | None = None
    """The stretches of steps that were read of the non-primary ranks; None if all were.

    If there are many ranks, only what is needed to compare them is read.
    """
    problems: tuple[schema.Problem, ...] = ()

    @property
    def imported(self) -> bool:
        """Return whether these are traces that torch.profiler wrote without profile-train, and nothing else."""
        return not self.runs and any(rank.traces for rank in self.ranks)

    @property
    def started_at(self) -> float:
        """Return when the run began, in seconds since 1970; 0 if unknown."""
        return self.runs[0].started_at if self.runs else 0.0

    def gpu_of(self, device: schema.DeviceFact) -> schema.Gpu | None:
        """Return NVML's record of one of torch's devices; None if it was not sampled.

        The two are matched by UUID because they number GPUs differently. torch leaves out NVML's prefix.
        """
        uuid = bare_uuid(device.uuid or "")
        return next((gpu for gpu in self.gpus if uuid and bare_uuid(gpu.uuid) == uuid), None)

    def gpus_of(self, rank: Rank, devices: Container[int]) -> tuple[schema.Gpu, ...]:
        """Return NVML's records of the rank's devices with these numbers; those that were not sampled are left out."""
        gpus = (self.gpu_of(fact) for fact in rank.devices if fact.id in devices)
        return tuple(gpu for gpu in gpus if gpu is not None)


def bare_uuid(uuid: str) -> str:
    """Return a UUID in a form common to torch and NVML: "GPU-8C2F..." and "8c2f..." are the same GPU."""
    return re.sub(r"^(mig-)?(gpu-)?", "", uuid.strip().lower())
