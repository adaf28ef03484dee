"""What a run holds: one frozen dataclass a table.

Times are seconds on the run clock (0 = the recorder's start; the host's monotonic clock underneath), sizes are bytes,
shares are 0 to 1. `None` means "not measured", never zero. A row with `count` > 1 stands for that many merged
neighbours and holds their *means* (or, where its docstring says so, sums), so a run of any length stays bounded.
Readers ignore columns they do not know; a newer `SCHEMA_VERSION` is refused with a remedy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SCHEMA_VERSION = 1

Outcome = Literal["completed", "failed", "killed", "running", "attached"]

# The phases that partition a steady step, in the order they are shown.
PHASES = (
    "data_wait",
    "loader_overhead",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "communication",
    "sync",
    "gc",
    "other",
)

# Work that falls between steps: told apart from them and reported as a share of run time.
BETWEEN = ("evaluation", "checkpoint_save", "epoch_start")

# Step.tags: why a step is not a steady one.
TAG_EPOCH_START = 1
TAG_EVALUATION = 2
TAG_CHECKPOINT = 4
TAG_WINDOW = 8  # a torch.profiler window was open, or was being saved
TAG_COMPILE = 16  # torch.compile compiled during it
TAG_FIRST = 32  # the first step of a process: it has no defined start


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One node's recording, one row."""

    id: str
    command: tuple[str, ...]
    cwd: str
    host: str
    started_at: float
    """Unix time at which the run clock was 0."""
    duration: float | None = None
    outcome: Outcome = "running"
    exit_status: int | None = None
    """As the shell would see it; 128 + signal if a signal ended the program."""
    signal: int | None = None
    cores: float
    """Cores this run may use: affinity and cgroup quota."""
    cores_total: int
    memory_total: int
    """The machine's, or the cgroup's limit if that is less."""
    cpu_model: str | None = None
    platform: str
    numa_nodes: dict[int, str] = field(default_factory=dict)
    """Cores of each NUMA node that has any, as "0-15,32-47"; empty where the system does not tell."""
    python: str
    """The recorder's Python; the program's own is in `Process`."""
    version: str
    """Of profile-train."""
    budget: float = 0.01
    """Share of run time the recording may cost the program."""
    recorder_cpu: float | None = None
    """CPU seconds the recorder itself has used."""
    job: str | None = None
    """The same in the recordings of one job: a digest of its command and of what its scheduler calls this start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process that imported torch: a rank, or a DataLoader worker of one."""

    pid: int
    parent: int | None = None
    role: Literal["rank", "worker"] = "rank"
    worker_id: int | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    node_rank: int = 0
    python: str | None = None
    executable: str | None = None
    """The interpreter that runs it."""
    cpus: str | None = None
    """Cores it may run on, as "0-15,32-47", by the first training events."""
    torch: str | None = None
    cuda: str | None = None
    """torch.version.cuda; None on a CPU build."""
    hip: str | None = None
    started: float
    """When the program imported torch."""
    ended: float | None = None
    events: int = 0
    events_lost: int = 0
    hooks: float = 0.0
    """Seconds this process has spent in our hooks, self-measured."""
    windows: float = 0.0
    """Seconds this process has spent opening, recording slower in and saving torch.profiler windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer update and the micro-steps before it: from the end of the last update to the end of this one.

    `duration` is wall time less the BETWEEN work inside it, and is the sum of the PHASES that are not None.
    On CUDA the phases are exposed times (CUDA events and host state together); on CPU they are host times.
    """

    pid: int
    index: int
    start: float
    duration: float
    count: int = 1
    tags: int = 0
    """Or of all merged rows' tags; rows with and without tags are never merged with one another."""
    micro_steps: float = 1.0
    """Backward passes."""
    batches: float = 0.0
    """Batches fetched for training."""
    data_wait: float | None = None
    """In `next()` of a training loader while no batch was ready."""
    loader_overhead: float | None = None
    """In `next()` although a batch was ready."""
    h2d: float | None = None
    forward: float | None = None
    backward: float | None = None
    optimizer: float | None = None
    communication: float | None = None
    sync: float | None = None
    gc: float | None = None
    other: float | None = None
    evaluation: float | None = None
    checkpoint_save: float | None = None
    epoch_start: float | None = None
    """Making the loader's iterator: starting the workers, mostly; and the first fetch of an epoch."""
    fetch_host: float | None = None
    """Host seconds in `next()`, exposed or not."""
    fetches_empty: float | None = None
    """Of `batches`, how many found no batch ready. Always all of them without workers."""
    queue_depth: float | None = None
    """Mean number of ready batches found; None without workers."""
    host_launch: float | None = None
    """Host seconds to enqueue the step's GPU work; None on CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch made by a dataset fetcher, in a worker or (no workers) in the training process."""

    pid: int
    loader: int
    start: float
    duration: float
    """Seconds from the request to the collated batch: t_w."""
    count: int = 1
    cpu: float
    """Seconds for which that thread ran or, for batches of some milliseconds, waited for a core: its demand."""
    collate: float
    samples: float
    files: float | None = None
    """Files opened meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU the program can see."""

    index: int
    """NVML's."""
    uuid: str
    name: str
    capability: tuple[int, int] | None = None
    memory_total: int
    sm_clock_max: int | None = None
    """MHz."""
    power_limit: float | None = None
    """W."""
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    driver: str | None = None
    cuda_driver: str | None = None
    """The newest CUDA this driver serves, as "13.0"."""
    mig: bool | None = None
    numa_node: int | None = None
    """The NUMA node it hangs on."""
    gpm: bool = False
    """GPU performance monitoring counters (Hopper or newer) could be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one moment; the counters of GPM are means since the sample before."""

    time: float
    gpu: int
    """Gpu.index."""
    count: int = 1
    utilization: float | None = None
    """Share of NVML's last sampling period in which any kernel ran: an upper bound of busy."""
    memory_used: int | None = None
    process_memory: int | None = None
    """Held by the run's own processes."""
    power: float | None = None
    """W."""
    energy: float | None = None
    """J since the driver was loaded; merged rows keep the last."""
    sm_clock: float | None = None
    memory_clock: float | None = None
    throttle: int | None = None
    """NVML clocks event reasons, a bit mask; merged rows keep the or."""
    temperature: float | None = None
    pcie_tx: float | None = None
    """Bytes/s."""
    pcie_rx: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    sm_active: float | None = None
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The process tree and the machine over the interval that ends at `time`."""

    time: float
    count: int = 1
    cpu: float | None = None
    """Cores used by the whole process tree of the program."""
    cpu_workers: float | None = None
    """Of these, by DataLoader workers."""
    rss: int | None = None
    """Of the tree (shared pages counted in each process)."""
    processes: int | None = None
    read: float | None = None
    """Bytes/s from storage."""
    write: float | None = None
    machine_cpu: float | None = None
    """Cores used by everything on the machine."""
    steal: float | None = None
    """Cores taken by the hypervisor."""
    memory_available: int | None = None
    swap_used: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """The CUDA caching allocator of one rank on one device."""

    time: float
    pid: int
    device: int
    count: int = 1
    allocated: int
    allocated_peak: int
    reserved: int
    reserved_peak: int
    retries: int = 0
    ooms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one torch.profiler window of a rank showed; all times are sums over its steps."""

    pid: int
    start: float
    steps: int
    duration: float
    cost: float
    """Seconds the program lost to starting and saving it."""
    device: Literal["cpu", "cuda"] = "cpu"
    shapes: bool = False
    """The shapes of operators' inputs were recorded too: that slows the host, so other windows tell more of time."""
    events: int = 0
    busy: float | None = None
    """Union of kernel intervals."""
    kernels: int | None = None
    median_kernel: float | None = None
    """Seconds."""
    idle_launch: float | None = None
    """Idle because the next kernel's launch call came after the previous kernel had ended."""
    idle_sync: float | None = None
    idle_data: float | None = None
    idle_other: float | None = None
    h2d: float | None = None
    """Host-to-device copies not hidden behind kernels."""
    h2d_pageable: float | None = None
    """Of these, from pageable memory."""
    communication: float | None = None
    """Collective kernels, hidden or not."""
    communication_exposed: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel (device "cuda") or operator (device "cpu", self time), summed over a window."""

    pid: int
    window: int
    """Window's position among those of its process."""
    device: Literal["cpu", "cuda"]
    name: str
    kind: str
    """matmul, convolution, attention (in one kernel), loss (cross-entropy), layout (NCHW to NHWC, transposes),
    elementwise, normalization, reduction, optimizer, copy, communication, host or other."""
    calls: int
    total: float
    tensor_cores: bool | None = None
    dtype: str | None = None
    """fp32, tf32, fp16, bf16, fp8 where the name tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator given inputs of one shape, summed over a window that recorded shapes: the dearest of them."""

    pid: int
    window: int
    """Window's position among those of its process."""
    device: Literal["cpu", "cuda"]
    """"cuda": seconds of the kernels it launched itself; "cpu": its own, less those of the operators it called."""
    name: str
    inputs: tuple[tuple[int, ...], ...]
    """Of each argument in order; () for what is no tensor, or a list of them."""
    dtype: str | None = None
    """Of the first input of floating point: fp64, fp32, fp16, bf16 or fp8."""
    calls: int
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """The distribution of one quantity over the whole run of one process, whatever was merged since.

    Logarithmic bins: bin k holds values in (g**(k-1), g**k] with g = 1.02, so a quantile is right to 1 %.
    """

    pid: int
    quantity: str
    """"duration", a phase's name, or "batch" (t_w)."""
    zeros: int
    bins: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A structured thing the agent saw, by kind; see FACTS below for each kind's dataclass."""

    pid: int
    time: float
    kind: str
    body: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that could not be measured, or was given up, and why. Shown in the report."""

    time: float
    pid: int | None = None
    source: str
    message: str


# ---- what Fact.body holds, by kind; later facts of the same kind and id replace earlier ones ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int
    via: tuple[str, ...] = ()
    """The frameworks that made the thing there on the user's behalf, outermost first: "transformers", ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFact:
    """kind "loader": a DataLoader, when it is first iterated and again after its first batch."""

    id: int
    place: Place | None = None
    variable: str | None = None
    """Its name in the source; filled in by the recorder."""
    dataset: str = "?"
    """Class name."""
    length: int | None = None
    """Batches per epoch, if it has a length."""
    iterable: bool = False
    batch_size: int | None = None
    num_workers: int = 0
    sampler: str | None = None
    collate: str | None = None
    pin_memory: bool = False
    drop_last: bool = False
    timeout: float = 0.0
    context: str | None = None
    """fork, spawn or forkserver."""
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    batch_bytes: int | None = None
    batch_tensors: int | None = None
    """As many hand-overs as that, if a worker makes the batch; None if nobody counted."""
    batch_device: str | None = None
    training: bool | None = None
    """Whether its batches are trained on; filled in by the recorder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFact:
    """kind "model": a root module, at its first training step."""

    id: int
    name: str = "?"
    """Class name of the innermost module: the user's own, without DDP, compile and the like."""
    place: Place | None = None
    """Where it is made, as the source says; filled in by the recorder, as is `variable`."""
    variable: str | None = None
    """Its name in the source, as "model" or "self.net"."""
    wrappers: tuple[str, ...] = ()
    """Classes around it, outermost first: OptimizedModule, DistributedDataParallel, FullyShardedDataParallel, ..."""
    parameters: int = 0
    trainable: int = 0
    tensors: int = 0
    """Trainable tensors."""
    bytes: int = 0
    dtypes: dict[str, int] = field(default_factory=dict)
    """Parameters by dtype."""
    devices: dict[str, int] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)
    """Module classes and how often each occurs."""
    block: str | None = None
    """Class of the largest repeated child: what activation checkpointing would wrap."""
    blocks: int = 0
    block_path: str | None = None
    """The dotted name of the list that holds them, as "transformer.h"."""
    block_bytes: int | None = None
    compiled: bool = False
    mesh: dict[str, int] = field(default_factory=dict)
    """The mesh of ranks that its DTensors lie on, by the names of its dimensions: {"dp": 4, "tp": 2}."""
    data_parallel: int | None = None
    """Ranks that train it on data of their own and reduce gradients together; None if nothing tells."""
    shards: int | None = None
    """Of these, how many share a copy of it: fewer where FSDP shards within each group and replicates among groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFact:
    """kind "optimizer": at its first and third step."""

    id: int
    place: Place | None = None
    callers: tuple[Place, ...] = ()
    """The user's own lines on the stack as it was made, innermost first."""
    driven_by: tuple[str, ...] = ()
    """The frameworks that call its step, outermost first; none in a loop of the program's own."""
    variable: str | None = None
    """Its name in the source; filled in by the recorder."""
    name: str = "?"
    module: str = ""
    groups: int = 1
    tensors: int = 0
    parameters: int = 0
    fused: bool | None = None
    foreach: bool | None = None
    lr: float | None = None
    state_bytes: int = 0
    """Wherever it lies: MemoryFact counts what is on the GPU."""
    gradient_bytes: int = 0
    device: str | None = None
    floating: bool = True
    """Every parameter is of a floating dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFact:
    """kind "call": the call in the program's source that configures a framework; made by the recorder."""

    id: str
    """The framework: "transformers", "lightning", ..."""
    name: str
    """Of what is called, as "TrainingArguments"."""
    place: Place
    settings: dict[str, str] = field(default_factory=dict)
    """Numbers, switches and short words among its arguments, by keyword, as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsFact:
    """kind "flags": what the program has switched on, read at a step after warm-up."""

    autocast: bool = False
    autocast_dtype: str | None = None
    grad_scaler: bool = False
    compile: bool = False
    checkpointing: bool = False
    packed: bool = False
    """Sequences were packed: a recurrent layer leaves their padding out."""
    ddp: bool = False
    fsdp: bool = False
    data_parallel: bool = False
    zero_stage: int | None = None
    """Of ZeRO: DeepSpeed's, ZeroRedundancyOptimizer's, or what FSDP comes to - 3 if weights are gathered anew for the
    backward pass, 2 if they are kept until then; None if nothing shards, or how is not known.
    """
    deterministic: bool = False
    anomaly: bool = False
    program_profiler: bool = False
    """The program uses torch.profiler itself."""
    profiled_throughout: bool = False
    """It was recording at three looks or more, all there were but one at most: no schedule of some steps does."""
    launch_blocking: bool = False
    distributed_debug: str | None = None
    allow_tf32: bool | None = None
    matmul_precision: str | None = None
    cudnn_benchmark: bool | None = None
    threads: int | None = None
    threads_from: Literal["program", "environment", "default"] | None = None
    """Who has set that number: a call of torch.set_num_threads, OMP_NUM_THREADS or MKL_NUM_THREADS, nobody."""
    interop_threads: int | None = None
    allocator_config: str | None = None
    evaluation_grad: bool | None = None
    """Evaluation ran with gradients enabled; None if no evaluation was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFact:
    """kind "device": a CUDA device as torch sees it, once the program has initialised CUDA."""

    id: int
    name: str = "?"
    uuid: str | None = None
    capability: tuple[int, int] | None = None
    memory_total: int = 0
    multiprocessors: int | None = None
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFact:
    """kind "memory": what the memory at the peak of a step was made of; activations and the rest are derived."""

    id: int
    """Device index."""
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    allocated_peak: int = 0
    reserved_peak: int = 0
    reserved: int = 0
    allocated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerFact:
    """kind "scaler": GradScaler's state, at most twice a second."""

    id: int
    steps: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFact:
    """kind "output": what the program has written since its tenth step."""

    id: int = 0
    writes: int | None = None
    """write() calls of the process; None where the system does not tell."""
    seconds: float = 0.0
    """In log handlers and fsync."""
    leading_up: float | None = None
    """From what the training did last until one of these began."""
    steps: int = 0
    """Steps in which that was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFact:
    """kind "region": a stretch that the program named with `region`, all its passes together."""

    id: int
    name: str = "?"
    count: int = 0
    seconds: float = 0.0
    """Wall time of all passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFact:
    """kind "trial": this process was one of a trial, and ended itself after its steps."""

    id: int = 0
    steps: int = 0
    losses: tuple[float | None, ...] = ()
    """Of each backward pass; None where it was not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFact:
    """kind "error": an exception that nothing caught."""

    id: int = 0
    type: str = ""
    """With its module, as "torch.OutOfMemoryError"; of a built-in one the name alone."""
    message: str | None = None
    """Its words, where they are torch's own on memory or on a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingFact:
    """kind "padding": sums over those batches of a loader that were looked at.

    Tokens stand for positions of any sequence, frames of sound too; pairs are their squares, a sequence each.
    """

    id: int
    """Of the loader."""
    told_by: str | None = None
    """Name or place in the batch of what tells padding from the rest; None if batches contradict one another."""
    batches: int = 0
    sequences: int = 0
    real: int = 0
    """Tokens that are no padding."""
    longest: int = 0
    """Tokens if each batch were padded to its longest sequence."""
    padded: int = 0
    """Tokens with all padding."""
    real_pairs: int = 0
    padded_pairs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpFact:
    """kind "ddp": a DistributedDataParallel that is trained; seconds are means over the passes torch has sampled."""

    id: int
    """That of the root module's ModelFact."""
    place: Place | None = None
    """Where it was made; None if that was before the agent came."""
    backend: str | None = None
    """nccl, gloo, ..."""
    gradient_bytes: int = 0
    """What one reduction takes, uncompressed."""
    dtypes: tuple[str, ...] = ()
    """Of the gradients."""
    bucket_cap: int | None = None
    """Bytes."""
    buckets: int | None = None
    gradient_as_bucket_view: bool = False
    find_unused_parameters: bool = False
    static_graph: bool = False
    comm_hook: str | None = None
    """Name of the hook that reduces in DDP's stead; None: none."""
    steps: int = 0
    """Optimizer steps over which passes were counted."""
    passes: int = 0
    """Training passes meanwhile."""
    reduced: int = 0
    """Of these, how many reduced gradients; the others ran under no_sync."""
    samples: int = 0
    """Reducing passes that torch timed: the first ten, then every hundredth; those before the counting left out."""
    compute: float | None = None
    """From the begin of the backward pass until the last gradient is there."""
    communication: float | None = None
    """From the begin of the first bucket's reduction to the end of the last's, waiting for slower ranks included."""
    overlap: float | None = None
    """Of `communication`, what lies before the end of `compute`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulFact:
    """kind "matmul": the largest product of a linear layer, as it was called in the first steps."""

    id: int
    rows: int
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadsFact:
    """kind "threads": how long the largest product takes with so many threads; measured after the program has ended."""

    id: int = 0
    seconds: dict[int, float] = field(default_factory=dict)
    """Medians by number of threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingFact:
    """kind "scheduling": a rank's main thread and the cores, from its first training event on; made by the recorder."""

    id: int = 0
    seconds: float = 0.0
    ran: float = 0.0
    """Of these, on a core."""
    waited: float = 0.0
    """Of these, ready to run while others had its cores."""


FACTS: dict[str, type] = {
    "scheduling": SchedulingFact,
    "trial": TrialFact,
    "error": ErrorFact,
    "matmul": MatmulFact,
    "threads": ThreadsFact,
    "padding": PaddingFact,
    "region": RegionFact,
    "loader": LoaderFact,
    "model": ModelFact,
    "optimizer": OptimizerFact,
    "call": CallFact,
    "flags": FlagsFact,
    "device": DeviceFact,
    "memory": MemoryFact,
    "scaler": ScalerFact,
    "output": OutputFact,
    "ddp": DdpFact,
}
