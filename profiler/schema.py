"""The contents of a run: one frozen dataclass per table.

Times are seconds on the run clock (0 = the recorder's start; the host's monotonic clock underneath), sizes are bytes,
shares are 0 to 1. `None` means "not measured", never zero. A row with `count` > 1 stands for that many merged neighbors
and holds their *means* (or sums, if its docstring says so). So the size of a recording stays bounded. Readers ignore
columns they do not know; a newer `SCHEMA_VERSION` is refused with a remedy.
"""

from __future__ import annotations  # docs/store.md shows annotations as written

import re
from dataclasses import dataclass, field
from typing import Literal

MOST_RANKS = 2**20
"""Maximum plausible world size: a larger one is a mistake or an attack, and is never iterated over."""

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

# Work between steps: not part of a step's duration, reported as a share of run time.
BETWEEN = ("evaluation", "checkpoint_save", "epoch_start")

# Step.tags: why a step is not steady.
TAG_EPOCH_START = 1
TAG_EVALUATION = 2
TAG_CHECKPOINT = 4
TAG_WINDOW = 8  # a torch.profiler window was open, or was being saved
TAG_COMPILE = 16  # torch.compile compiled or a CUDA graph was captured during it
TAG_FIRST = 32  # the first step of a process: it has no defined start
TAG_UNREACHED = 64  # no GPU was seen to reach its end before the program ended: its duration is launch time


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The recording of one node, one row."""

    id: str
    command: tuple[str, ...]
    cwd: str
    host: str
    started_at: float
    """Unix time at which the run clock was 0."""
    duration: float | None = None
    outcome: Outcome = "running"
    exit_status: int | None = None
    """Exit status as the shell sees it; 128 + signal if a signal ended the program."""
    signal: int | None = None
    cores: float
    """Cores this run may use: affinity and cgroup quota."""
    cores_total: int
    memory_total: int
    """Memory of the machine, or the cgroup's limit if that is lower."""
    cpu_model: str | None = None
    platform: str
    numa_nodes: dict[int, str] = field(default_factory=dict)
    """Cores of each NUMA node that has cores, as "0-15,32-47"; empty if the system does not report them."""
    python: str
    """Version of the recorder's Python; the program's is in `Process`."""
    version: str
    """Version of profile-train."""
    budget: float = 0.01
    """Share of the run time that the recording may cost the program."""
    recorder_cpu: float | None = None
    """CPU seconds used by the recorder itself."""
    job: str | None = None
    """ID shared by the recordings of one job. It is a hash of the command and the scheduler's name for this start."""
    user: str | None = None
    """The user's name, from $LOGNAME or $USER."""
    project: str | None = None
    """Name of the git repository's folder that contains the script."""
    commit: str | None = None
    """Commit that was checked out when the recording began; None for an attached program. It does not show uncommitted
    changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that imported torch: a rank, or a DataLoader worker of one."""

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
    """The interpreter of the process."""
    cpus: str | None = None
    """Cores the process may run on, as "0-15,32-47", at its first training events."""
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
    """Seconds this process spent in profile-train's hooks, as measured by the hooks."""
    windows: float = 0.0
    """Seconds that torch.profiler windows cost this process. This includes opening them, slower steps while recording,
    and saving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An optimizer update and the micro-steps before it.

    A step lasts from the end of the previous update to the end of this one. `duration` is the wall time minus the
    BETWEEN work inside it, and is the sum of the PHASES that are not None. On CUDA the phases are exposed times (CUDA
    events and host state together); on CPU they are host times.
    """

    pid: int
    index: int
    start: float
    duration: float
    count: int = 1
    tags: int = 0
    """Bitwise OR of the tags of all merged rows. Rows with tags are never merged with rows without tags."""
    micro_steps: float = 1.0
    """Number of backward passes."""
    batches: float = 0.0
    """Number of batches fetched for training."""
    forwards: float | None = None
    """Number of model calls, without evaluation; None if no call was seen."""
    data_wait: float | None = None
    """Time in `next()` of a training loader while no batch was ready."""
    loader_overhead: float | None = None
    """Time in `next()` while a batch was ready."""
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
    """Time to create the loader's iterator and to fetch the first batch of an epoch. Creating the iterator mostly means
    starting its workers."""
    fetch_host: float | None = None
    """Host seconds in `next()`, exposed or not."""
    fetches_empty: float | None = None
    """Number of `batches` that were not ready when requested; without workers, all of them."""
    queue_depth: float | None = None
    """Mean number of ready batches at a fetch; None without workers."""
    host_launch: float | None = None
    """Host seconds to launch the step's GPU work; None on CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch prepared in a worker or, without workers, in the training process."""

    pid: int
    loader: int
    start: float
    duration: float
    """Seconds from the request to the collated batch: batch_time."""
    count: int = 1
    cpu: float
    """CPU demand of the thread, in seconds. This is the time that it ran, plus, for batches of at least some
    milliseconds, the time that it waited for a core."""
    collate: float
    samples: float
    files: float | None = None
    """Number of files opened during that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU the program can see."""

    index: int
    """NVML's index."""
    uuid: str
    name: str
    capability: tuple[int, int] | None = None
    memory_total: int
    sm_clock_max: int | None = None
    """Maximum SM clock, MHz."""
    memory_clock_max: int | None = None
    """Maximum memory clock, MHz; two transfers per cycle."""
    memory_bus_width: int | None = None
    """Width of the memory bus, bits."""
    power_limit: float | None = None
    """Power limit, W."""
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    driver: str | None = None
    cuda_driver: str | None = None
    """The newest CUDA version this driver supports, as "13.0"."""
    mig: bool | None = None
    numa_node: int | None = None
    """The NUMA node to which it is attached."""
    gpm: bool = False
    """Whether GPU performance monitoring (GPM) counters (Hopper or newer) could be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one moment. GPM counters are means since the previous sample."""

    time: float
    gpu: int
    """The GPU's `Gpu.index`."""
    count: int = 1
    utilization: float | None = None
    """Share of NVML's last sampling period in which any kernel ran: an upper bound for the busy time."""
    memory_used: int | None = None
    process_memory: int | None = None
    """Bytes held by the run's own processes."""
    power: float | None = None
    """Power draw, W."""
    energy: float | None = None
    """Energy in J since the driver was loaded; merged rows keep the last."""
    sm_clock: float | None = None
    memory_clock: float | None = None
    throttle: int | None = None
    """NVML clocks event reasons, a bit mask; merged rows keep the bitwise OR."""
    temperature: float | None = None
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
    """Cores used by DataLoader workers, included in `cpu`."""
    rss: int | None = None
    """Resident bytes of the tree; shared pages count in each process."""
    processes: int | None = None
    read: float | None = None
    """Bytes/s read from storage."""
    write: float | None = None
    machine_cpu: float | None = None
    """Cores used by everything on the machine."""
    steal: float | None = None
    """Cores taken by the hypervisor."""
    memory_available: int | None = None


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
    """The results of one torch.profiler window of a rank; all times are sums over its steps."""

    pid: int
    start: float
    steps: float
    """Number of steps; less than one if only a part of a long step was recorded."""
    duration: float
    cost: float
    """Seconds that the program lost to starting and saving the window."""
    device: Literal["cpu", "cuda"] = "cpu"
    shapes: bool = False
    """Whether the input shapes of operators were recorded. Recording shapes slows down the host, so windows without
    shapes show times more accurately."""
    events: int = 0
    """Number of its trace events whose recording cost host time."""
    busy: float | None = None
    """Union of kernel intervals."""
    kernels: int | None = None
    median_kernel: float | None = None
    """Median duration of a kernel, seconds."""
    idle_launch: float | None = None
    """Idle time because the next kernel's launch call came after the previous kernel had ended."""
    idle_stalled: float | None = None
    """Part of `idle_launch` in gaps of more than a millisecond, in which the host did other work than launching."""
    idle_allocating: float | None = None
    """Part of `idle_launch` in which the host allocated or freed device memory."""
    scatter: float | None = None
    """Relative uncertainty of the duration if kernels and gaps vary at random; large if there are few of them."""
    idle_sync: float | None = None
    idle_data: float | None = None
    idle_other: float | None = None
    h2d: float | None = None
    """Host-to-device copies not hidden behind kernels."""
    h2d_pageable: float | None = None
    """Part of `h2d` that copies from pageable memory."""
    communication: float | None = None
    """Time in collective kernels, hidden or not."""
    communication_exposed: float | None = None
    host_launch: float | None = None
    """Host seconds to launch the GPU work, without fetching batches and without waiting for the GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel (device "cuda") or operator (device "cpu", self time), summed over a window."""

    pid: int
    window: int
    """Index of the window within its process."""
    device: Literal["cpu", "cuda"]
    name: str
    kind: str
    """Kind of work. One of matmul, convolution, attention (in one kernel), loss (cross-entropy), layout (NCHW to NHWC,
    transposes), elementwise, normalization, reduction, optimizer, copy, communication, host or other."""
    calls: int
    total: float
    tensor_cores: bool | None = None
    dtype: str | None = None
    """fp32, tf32, fp16, bf16, fp8 or fp4, if the kernel's name or the inputs of the launching operator show it."""
    reached: float | None = None
    """Share of the multiprocessors for which it has blocks; None if the trace does not show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Waits of the host for the GPU in a window that left the GPU idle, summed by cause."""

    pid: int
    window: int
    """Index of the window within its process."""
    cause: str
    """Cause of the waits. One of item (a value is read), branch (a tensor is a condition), grad_scaler (it checks for
    overflows), shape (a result's size depends on values), copy_in and copy_out (a blocking copy to or from the GPU),
    collective (a backend that works on the host), synchronize (the program requests it), or other."""
    operator: str
    """The innermost operator around the wait; if there is none, the CUDA call."""
    calls: int
    idle: float
    """Seconds in which the GPU was idle because of these waits."""


REST = "(rest)"
"""Name of the operator-table row that sums up all operators without their own row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A row of the operator table: one operator with one input shape at one place in the model, summed over a window.

    Only the most expensive operators have a row; one row named `REST` sums up the others.
    """

    pid: int
    window: int
    """Index of the window within its process."""
    device: Literal["cpu", "cuda"]
    """Device that `total` refers to. "cuda": seconds of the kernels that the operator itself launched; "cpu": its self
    time, without the operators it called."""
    name: str
    inputs: tuple[tuple[int, ...], ...]
    """Shape of each argument in order; () for a non-tensor or a list of tensors. Empty if none were recorded."""
    dtype: str | None = None
    """Dtype of the first floating-point input: fp64, fp32, fp16, bf16 or fp8."""
    calls: int
    total: float
    kind: str = "other"
    """`Kernel.kind` of the kernel that takes most of the time."""
    phase: str | None = None
    """forward, backward or optimizer; None for anything else, or if the trace does not show it."""
    path: tuple[str, ...] = ()
    """Modules, annotations and operators around it, outermost first, without instance numbers."""
    kernels: int | None = None
    kernel: str = ""
    """Name of the kernel that takes most of its time."""
    arithmetic: str | None = None
    """Dtype that it computes in (`Kernel.dtype`); if unknown, the dtype of its inputs."""
    host: float | None = None
    """Host seconds from the start to the end of its calls, including the operators that it calls."""
    gap: float | None = None
    """Seconds in which the GPU was idle because this operator's launches came late."""
    flop: float | None = None
    """Floating-point operations of all calls; None if they are not known."""
    bytes: float | None = None
    """Minimum number of bytes that all calls read and write; None if it is not known."""
    run: float | None = None
    """Mean number of its calls in a row, with no other launch in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """The distribution of one quantity over the whole run of one process; merging rows does not affect it.

    Logarithmic bins: bin k holds values in (g**(k-1), g**k] with g = 1.02, so a quantile is accurate to 1 %.
    """

    pid: int
    quantity: str
    """Name of the quantity: "duration", a phase's name, or "batch" (batch_time)."""
    zeros: int
    bins: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A structured observation by the agent. FACTS, below, lists the dataclass of each kind."""

    pid: int
    time: float
    kind: str
    body: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A Python stack of a process's main thread, and how often it was sampled in one phase."""

    pid: int
    """PID of the training process, also for the stacks of its DataLoader workers."""
    id: int
    """Number of the stack within its process."""
    role: Literal["rank", "worker"] = "rank"
    phase: str = "other"
    """For a rank: data_wait, forward, backward, optimizer, checkpoint_save, evaluation, epoch_start, logging, metric or
    other. For a worker: fetch, collate, idle or other."""
    steady: bool = False
    """Whether the samples are from steady steps of the training process."""
    frames: tuple[tuple[str, int, str, str], ...] = ()
    """File, line, function and library of each frame, outermost first. The library is "" for the program's own code,
    "python" for the standard library. Of consecutive library frames, only the first and the last are kept. A row
    without frames sums up stacks beyond the limit of different stacks."""
    total: float
    samples: int


NO_DRIVER = "no-driver"
"""Code of a Problem that is expected: training on the CPU of a machine without a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A measurement that failed or was stopped, and why; shown in the report."""

    time: float
    pid: int | None = None
    source: str
    message: str
    code: str = ""
    """The type of the error, how the program ended, or why a change was not made; empty if `source` is enough."""


# ---- Fact.body by kind; a later fact of the same kind and `id` (if it has one) replaces an earlier one ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int
    via: tuple[str, ...] = ()
    """The frameworks that made the object there on the user's behalf, outermost first: "transformers", ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFact:
    """Fact of kind "loader": a DataLoader, when it is first iterated and again after its first batch."""

    id: int
    place: Place | None = None
    variable: str | None = None
    """The loader's name in the source; filled in by the recorder."""
    dataset: str = "?"
    """Class name of the dataset."""
    length: int | None = None
    """Batches per epoch, if known."""
    iterable: bool = False
    batch_size: int | None = None
    num_workers: int = 0
    sampler: str | None = None
    collate: str | None = None
    pin_memory: bool = False
    context: str | None = None
    """Start method: fork, spawn or forkserver."""
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    batch_bytes: int | None = None
    batch_tensors: int | None = None
    """Tensors per batch, each handed over separately if a worker makes the batch; None if not counted."""
    batch_device: str | None = None
    training: bool | None = None
    """Whether its batches are trained on; filled in by the recorder."""

    @property
    def forks(self) -> bool:
        """Return whether its workers, if it has any, are forked."""
        return self.context in (None, "fork")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFact:
    """Fact of kind "model": a root module, at its first training step."""

    id: int
    name: str = "?"
    """Class name of the innermost module: the user's own, without DDP, compile and similar wrappers."""
    place: Place | None = None
    """Where the model is made, according to the source; filled in by the recorder, as is `variable`."""
    variable: str | None = None
    """The model's name in the source, such as "model" or "self.net"."""
    wrappers: tuple[str, ...] = ()
    """Classes around the model, outermost first. Examples: OptimizedModule, DistributedDataParallel,
    FullyShardedDataParallel."""
    parameters: int = 0
    trainable: int = 0
    tensors: int = 0
    """Number of trainable tensors."""
    bytes: int = 0
    sized: bool = True
    """False if a parameter's class defines its own `__torch_dispatch__`: only that code can determine the size, so none
    of these numbers includes the parameter."""
    dtypes: dict[str, int] = field(default_factory=dict)
    """Number of parameters by dtype."""
    devices: dict[str, int] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)
    """Module classes and how often each occurs."""
    block: str | None = None
    """Class of the largest repeated child, which activation checkpointing would wrap."""
    blocks: int = 0
    block_bytes: int | None = None
    compiled: bool = False
    data_parallel: int | None = None
    """Number of ranks that train it on their own data and reduce gradients together; None if unknown."""
    shards: int | None = None
    """Number of `data_parallel` ranks that share one copy of the model. It is smaller than `data_parallel` if FSDP
    shards within groups and replicates among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFact:
    """Fact of kind "optimizer": an optimizer, at its first and third step."""

    id: int
    place: Place | None = None
    callers: tuple[Place, ...] = ()
    """The user's own lines on the stack when it was made, innermost first."""
    driven_by: tuple[str, ...] = ()
    """The frameworks that call its step, outermost first; empty for the program's own loop."""
    variable: str | None = None
    """The optimizer's name in the source; filled in by the recorder."""
    name: str = "?"
    module: str = ""
    tensors: int = 0
    parameters: int = 0
    sized: bool = True
    """False if the numbers do not cover all parameters: as in ModelFact, or because the program defines `param_groups`
    as a property."""
    fused: bool | None = None
    foreach: bool | None = None
    lr: float | None = None
    state_bytes: int = 0
    """Bytes of its state on any device; MemoryFact counts those on the GPU."""
    gradient_bytes: int = 0
    device: str | None = None
    floating: bool = True
    """Whether every parameter has a floating dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFact:
    """Fact of kind "call": a call in the source that configures a framework; made by the recorder."""

    id: str
    """The framework: "transformers", "lightning", ..."""
    name: str
    """Name of the called object, such as "TrainingArguments"."""
    place: Place
    settings: dict[str, str] = field(default_factory=dict)
    """Numbers, switches and short words among its arguments, by keyword, as written in the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsFact:
    """Fact of kind "flags": the features that the program has enabled, reread from time to time."""

    autocast: bool = False
    autocast_dtype: str | None = None
    grad_scaler: bool = False
    compile: bool = False
    checkpointing: bool = False
    packed: bool = False
    """Whether sequences were packed: a recurrent layer then skips their padding."""
    ddp: bool = False
    fsdp: bool = False
    data_parallel: bool = False
    zero_stage: int | None = None
    """ZeRO stage, from DeepSpeed, ZeroRedundancyOptimizer, or FSDP's equivalent. For FSDP: 3 if weights are gathered
    again for the backward pass, 2 if they are kept until then; None if nothing shards or the stage is unknown."""
    deterministic: bool = False
    anomaly: bool = False
    program_profiler: bool = False
    """Whether the program uses torch.profiler itself."""
    profiled_throughout: bool = False
    """Whether the program's profiler was recording at three or more checks, and at all checks but at most one. A
    profiling schedule of a few steps does not do that."""
    launch_blocking: bool = False
    distributed_debug: str | None = None
    allow_tf32: bool | None = None
    matmul_precision: str | None = None
    cudnn_benchmark: bool | None = None
    threads: int | None = None
    threads_from: Literal["program", "environment", "default"] | None = None
    """Origin of `threads`: torch.set_num_threads, OMP_NUM_THREADS or MKL_NUM_THREADS, or torch's default."""
    interop_threads: int | None = None
    allocator_config: str | None = None
    evaluation_grad: bool | None = None
    """Whether evaluation ran with gradients enabled; None if no evaluation was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFact:
    """Fact of kind "device": a CUDA device as torch sees it, once the program has initialized CUDA."""

    id: int
    name: str = "?"
    uuid: str | None = None
    capability: tuple[int, int] | None = None
    memory_total: int = 0
    multiprocessors: int | None = None
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFact:
    """Fact of kind "memory": the parts of peak memory; activations and the rest are derived from them."""

    id: int
    """Device index."""
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    allocated_peak: int = 0
    reserved_peak: int = 0
    reserved: int = 0
    allocated: int = 0
    free: int | None = None
    """Bytes the driver could still allocate (cudaMemGetInfo), after other processes' memory."""
    total: int | None = None
    """Bytes of the device, from the same call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerFact:
    """Fact of kind "scaler": GradScaler's state, at most twice per second."""

    steps: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFact:
    """Fact of kind "output": the program's output since its tenth step."""

    writes: int | None = None
    """write() calls of the process; None if the system does not report them."""
    seconds: float = 0.0
    """Seconds in log handlers and fsync."""
    leading_up: float | None = None
    """Seconds from the previous training activity to the start of such output."""
    steps: int = 0
    """Number of steps covered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFact:
    """Fact of kind "region": a part of the program named with `region`, all its passes together."""

    id: int
    name: str = "?"
    count: int = 0
    seconds: float = 0.0
    """Wall time of all passes, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFact:
    """Fact of kind "trial": this process belonged to a trial and ended itself after its steps."""

    steps: int = 0
    losses: tuple[float | None, ...] = ()
    """Loss of each backward pass; None if it was not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFact:
    """Fact of kind "error": an uncaught exception."""

    type: str = ""
    """Exception type with its module, such as "torch.OutOfMemoryError"; built-in types have no module."""
    message: str | None = None
    """Message, if it is one of torch's own about memory or a worker; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingFact:
    """Fact of kind "padding": sums over the inspected batches of a loader.

    Tokens stand for positions of any sequence, sound frames included; pairs are the squares of each sequence's tokens.
    """

    id: int
    """Number of the loader."""
    told_by: str | None = None
    """Path within the batch to the array that shows the padding; None if batches contradict one another."""
    batches: int = 0
    real: int = 0
    """Tokens that are not padding."""
    longest: int = 0
    """Tokens if each batch were padded to its longest sequence."""
    padded: int = 0
    """Tokens including all padding."""
    real_pairs: int = 0
    padded_pairs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpFact:
    """Fact of kind "ddp": a trained DistributedDataParallel. Seconds are means over the passes torch has sampled."""

    id: int
    """Number of the root module, as in its ModelFact."""
    place: Place | None = None
    """Where it was made; None if that was before the agent was installed."""
    backend: str | None = None
    """Communication backend: nccl, gloo, ..."""
    gradient_bytes: int = 0
    """Bytes of one reduction, uncompressed."""
    dtypes: tuple[str, ...] = ()
    """Dtypes of the gradients."""
    bucket_cap: int | None = None
    """Maximum size of a bucket, bytes."""
    buckets: int | None = None
    gradient_as_bucket_view: bool = False
    find_unused_parameters: bool = False
    comm_hook: str | None = None
    """Name of the hook that reduces instead of DDP itself; None if there is none."""
    steps: int = 0
    """Optimizer steps over which passes were counted."""
    passes: int = 0
    """Number of training passes in these steps."""
    reduced: int = 0
    """Number of these passes that reduced gradients; the others ran under no_sync."""
    samples: int = 0
    """Number of reducing passes that torch timed since counting began: the first ten, then every hundredth."""
    compute: float | None = None
    """Seconds from the start of the backward pass until the last gradient is ready."""
    communication: float | None = None
    """Seconds from the start of the first bucket's reduction to the end of the last. Waits for slower ranks are
    included."""
    overlap: float | None = None
    """Part of `communication` before the end of `compute`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulFact:
    """Fact of kind "matmul": the largest matmul of a linear layer, as called in the first steps."""

    rows: int
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadsFact:
    """Fact of kind "threads": duration of the largest matmul by number of threads.

    It is measured after the program has ended.
    """

    seconds: dict[int, float] = field(default_factory=dict)
    """Median seconds by number of threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsFact:
    """Fact of kind "windows": the torch.profiler windows of a rank, and why there are none or no more."""

    reason: str | None = None
    """Why the next window was not taken; None if one was taken and nothing prevents more.

    - "off": windows are switched off
    - "too_few_steps": the program ended before its step time settled
    - "budget": the next one would cost more than the budget allows
    - "steps_too_long": a step holds more events than a window may
    - "program_profiler": the program profiles itself
    - "other_tool": another tool (Nsight Systems, an injected library) uses CUPTI
    - "kineto_daemon": a daemon takes traces on demand (KINETO_USE_DAEMON)
    - "cuda_graphs": the program replays CUDA graphs, which may hang before CUDA 12 while they are profiled
    - "memory": the GPU had less than 1 GiB free
    - "failed": the profiler failed; see the problems
    """
    graph_times_wrong: bool = False
    """Whether the program replays CUDA graphs, whose kernel times CUPTI misreports before CUDA 13.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Collectives of one kind and group in a trace."""

    name: str
    group: str
    ranks: int | None = None
    dtype: str = ""
    calls: int
    seconds: float
    exposed: float
    waited: float | None = None
    """Seconds spent waiting for ranks that arrived later; None unless the traces of all ranks are available."""
    bytes: int | None = None
    algorithm: float | None = None
    """Algorithm bandwidth, bytes/s; excludes waiting if that is known."""
    bandwidth: float | None = None
    """Bus bandwidth, bytes/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The queue of the stream with the most launches: work that was launched but has not started."""

    mean: float
    most: int
    empty: float
    """Share of the time in which the queue was empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """The cost of launches; times in seconds."""

    calls: int
    median: float
    p99: float
    slow: int
    """Calls above 50 us."""
    delay: float
    """Median time from the end of a call to the start of its work."""
    shorter: float
    """Share of the calls that took longer than the work they launched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The activity of one stream or thread in a step."""

    name: str
    levels: int = 1
    """Number of nesting levels of its pieces."""
    items: tuple[tuple[int, int, int, int, int, int], ...] = ()
    """Start and length in nanoseconds, indexes of name and kind, level, and the number of pieces it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The longest stretch of one part of a step; times in seconds."""

    part: str
    start: float
    """Offset from the start of the step."""
    seconds: float
    host: str = ""
    """Name of the range that the host was in for most of it."""


STANDS_OUT = 1.05
"""The slowest step is shown if it takes more than this multiple of a typical step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLook:
    """One step in detail."""

    which: Literal["typical", "slowest"]
    number: int | None = None
    """Number of the step; None if the trace marks no steps, and this is the whole trace."""
    seconds: float
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds by part, as named in importers.gpu_time; without a GPU, by phase."""
    stretches: tuple[Stretch, ...] = ()
    tick: float = 0.0
    """Seconds below which neighboring pieces are merged; 0 if none are."""
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    lanes: tuple[Lane, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFact:
    """Fact of kind "trace": what a trace with GPU work shows beyond its rows; made by the recorder for each window.

    Fields that the trace does not show are None or empty.
    """

    id: int
    """Index of the window within its process."""
    file: str = ""
    events: int = 0
    shapes: bool = False
    """Same as Window.shapes."""
    steps: int | None = None
    """Number of marked steps that are analyzed; None if the trace is analyzed as a whole."""
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds by part, as named in importers.gpu_time; they add up to `seconds`."""
    longest_idle: float | None = None
    """Longest time that the GPU was idle, in seconds; None without GPU work."""
    workers: bool | None = None
    """Whether worker processes of a DataLoader prepare the batches; None if no fetch is in the trace."""
    optimizer: str = ""
    """Class of the optimizer that takes the most time; empty if none is marked."""
    fused: bool | None = None
    """Whether fused kernels perform its updates; None if the trace contains none of its kernels."""
    overlap: float | None = None
    """Share of communication that is hidden behind computing; None without communication."""
    queue: Waiting | None = None
    launches: Launching | None = None
    critical: dict[str, float] = field(default_factory=dict)
    """Seconds of the median step's critical path, by kind of link."""
    exchanges: tuple[Exchange, ...] = ()
    looks: tuple[StepLook, ...] = ()
    """A typical step and the slowest one; if a run has several windows, from only one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingFact:
    """Fact of kind "scheduling": a rank's main thread and its cores; made by the recorder.

    It covers the time from the rank's first training event on.
    """

    seconds: float = 0.0
    waited: float = 0.0
    """Seconds ready to run while others had its cores."""


FACTS: dict[str, type] = {
    name.removesuffix("Fact").lower(): cls for name, cls in [*globals().items()] if re.fullmatch(r"\w+Fact", name)
}
"""The dataclass of each kind of fact. A kind is named after its class: "loader" is LoaderFact."""
