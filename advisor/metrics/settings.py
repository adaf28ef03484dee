"""The program and its settings; most of these metrics are facts, not numbers."""

from collections.abc import Iterable

from advisor.metrics.base import Metrics, Missing, Need, known, metric
from advisor.runs.profile import Rank
from profiler.schema import FlagsFact, ModelFact, OptimizerFact, ScalerFact

NVML = "Run on a machine with an NVIDIA GPU, its driver and nvidia-ml-py."
"""How to get samples of the GPU."""


@metric(None)
def primary_rank(m: Metrics) -> Rank:
    """The training process with the lowest rank. Metrics of a single rank describe this one."""
    return known(
        min(m.profile.ranks, key=lambda rank: rank.process.rank, default=None),
        "No training process was seen",
        "Start the program with profile-train, in a Python that reads PYTHONPATH (not python -I or -S).",
    )


def require_sized(facts: Iterable[ModelFact | OptimizerFact]) -> None:
    """Raise Missing if only the program's own code can return the size of a parameter: that code is not called."""
    if not all(fact.sized for fact in facts):
        raise Missing(
            "Only the program's own classes know the size of the parameters, and profile-train does not call their "
            "code",
            "Use tensors without their own __torch_dispatch__, and an optimizer whose `param_groups` is a list.",
        )


@metric(None)
def model(m: Metrics) -> ModelFact:
    """The model that is trained; if there are several, the one with the most trainable parameters."""
    remedy = "Let the run reach a step that calls an nn.Module with gradients."
    models = known(m[primary_rank].models or None, "No model was seen in training", remedy)
    require_sized(models)
    return max(models, key=lambda fact: fact.trainable)


@metric("1", "share of parameters in FP64")
def fp64_parameters(m: Metrics) -> float:
    """Share of the model's parameters that are fp64."""
    dtypes = m[model].dtypes
    return dtypes.get("float64", 0) / sum(dtypes.values()) if dtypes else 0.0


@metric(None)
def optimizers(m: Metrics) -> tuple[OptimizerFact, ...]:
    """All torch optimizers that made a step."""
    remedy = "Let the run reach an optimizer step; torch.optim optimizers are recognized."
    return known(m[primary_rank].optimizers or None, "No torch optimizer was seen", remedy)


@metric(None)
def optimizer(m: Metrics) -> OptimizerFact:
    """The optimizer that updates the most parameters."""
    candidates = m[optimizers]
    require_sized(candidates)
    return max(candidates, key=lambda fact: fact.parameters)


@metric(None)
def flags(m: Metrics) -> FlagsFact:
    """The program's settings: autocast, compile, debug modes, backends."""
    settings = m[primary_rank].flags
    return known(settings, "The program's settings were not read", "Let the run continue for more than ten steps.")


@metric(None, "ranks")
def world_size(m: Metrics) -> int:
    """Number of training processes in the job, on all nodes."""
    return max(m[primary_rank].process.world_size, len({rank.process.rank for rank in m.profile.ranks}))


@metric("count", "data-parallel ranks")
def data_parallel_size(m: Metrics) -> int:
    """Number of ranks that train on different data and reduce gradients together.

    With tensor or pipeline parallelism, this is less than all ranks. If no device mesh was seen, all ranks count.
    """
    fact = m.get(model)
    return (fact.data_parallel if fact else None) or m[world_size]


@metric(None, "ranks that shard the model")
def shard_size(m: Metrics) -> int:
    """Number of ranks over which FSDP or ZeRO shards the model.

    These are all data-parallel ranks, except in hybrid sharding, where each group of ranks keeps a copy.
    """
    fact = m.get(model)
    shards = fact.shards if fact else None
    return shards if shards is not None and shards > 1 else m[data_parallel_size]


@metric(None)
def scaler(m: Metrics) -> ScalerFact:
    """The state of the GradScaler."""
    remedy = "Nothing to do, unless the program trains in fp16; then scale its loss."
    return known(m[primary_rank].scaler, "No GradScaler was seen", remedy)


@metric(None)
def packs_sequences(m: Metrics) -> bool:
    """Whether the program packs sequences, so that recurrent layers skip their padding."""
    return m[flags].packed


@metric(None)
def evaluation_grad(m: Metrics) -> bool:
    """Whether evaluation ran with gradients enabled."""
    remedy = "Record a run long enough to include one evaluation."
    return known(m[flags].evaluation_grad, "No evaluation was seen", remedy)


@metric(None)
def on_cpu(m: Metrics) -> bool:
    """Whether the program trains on the CPU. This may be so even if the machine has a GPU."""
    rank = m[primary_rank]
    names = [name for fact in rank.models for name in fact.devices]
    return not rank.devices and bool(names) and all(name.startswith("cpu") for name in names)


@metric(None)
def is_trace(m: Metrics) -> bool:
    """Whether this is an imported torch.profiler trace with GPU work, not a recording by profile-train."""
    return m.profile.imported and any(window.busy for window in m[primary_rank].windows)


def gpu_need(m: Metrics) -> Need:
    """Return why a GPU metric is missing: no GPU to train on, or a GPU that this run did not show."""
    rank = m.get(primary_rank)
    unseen = rank is not None and not (rank.devices or m.profile.gpus or any(window.busy for window in rank.windows))
    return Need.GPU if unseen or m.get(on_cpu) else Need.RUN


AMD = "AMD GPUs are not sampled, only NVIDIA's: utilization, power and clocks are not measured"
"""What a recording of a program on ROCm lacks."""
AMD_REMEDY = (
    "Nothing to do: steps, GPU time, memory and profiler windows are measured. For the rest see amd-smi monitor."
)


UNTIMED = "The time of work on {} devices is not measured, because the host only enqueues it"


def untimed(rank: Rank) -> str | None:
    """Return the kind of device a rank trains on if its work is queued and not timed; None otherwise.

    Such devices are XPU, MPS and HPU; the recorder leaves phases out for them.
    """
    kinds = (name.partition(":")[0] for fact in rank.models for name in fact.devices)
    return next((kind for kind in kinds if kind not in ("cpu", "cuda", "meta")), None)


def no_gpu(m: Metrics, what: str) -> Missing:
    """Return the error for a missing GPU.

    If a GPU does compute, as in a trace, the error reports only that `what` was not recorded.
    """
    rank = m.get(primary_rank)
    if rank is not None and rank.process.hip and rank.devices:
        return Missing(AMD, AMD_REMEDY)
    need = gpu_need(m)
    if need is Need.GPU:
        return Missing("No GPU was seen", NVML, need)
    return Missing(what, "Record the program itself, on a machine with NVIDIA's driver and nvidia-ml-py.", need)


WINDOW_REMEDIES = {
    "off": "Record without --no-windows and with a budget above 0.",
    "too_few_steps": "Record at least 60 steps: profiler windows open once the step time settles.",
    "budget": "Record for longer, or allow more overhead: --budget 0.05.",
    "steps_too_long": "Record with smaller steps: one step of this run exceeds the limit of a window.",
    "program_profiler": "Turn off the program's own profiler: torch.profiler supports one user at a time.",
    "other_tool": (
        "Record without Nsight Systems and other injected libraries: GPU tracing supports one user at a time."
    ),
    "kineto_daemon": "Unset KINETO_USE_DAEMON: profiler windows would end the traces that its daemon requests.",
    "cuda_graphs": "Use torch for CUDA 12 or newer: profiling CUDA graphs may hang on older ones.",
    "memory": "Leave 1 GiB of the GPU's memory free, for example with a smaller batch.",
    "failed": "See the problems listed in the report.",
}
"""How to get profiler windows, by `schema.WindowsFact.reason`."""


def no_window(m: Metrics) -> Missing:
    """Return the error to raise if a metric needs profiler windows and the run has none."""
    need, state = gpu_need(m), m[primary_rank].window_state
    remedy = "Run on a GPU, for at least 60 steps, with windows enabled."
    if need is not Need.GPU and state is not None and state.reason is not None:
        remedy = WINDOW_REMEDIES.get(state.reason, WINDOW_REMEDIES["failed"])
    return Missing("No kernels were recorded", remedy, need)


@metric(None, "enabled debugging modes")
def debug_modes(m: Metrics) -> tuple[str, ...]:
    """Debugging modes that are turned on.

    The names are "anomaly", "launch_blocking", "distributed_debug" (DETAIL), and "program_profiler" or, if that
    profiler records all the time, "profiled_throughout". Deterministic algorithms are not included, because users turn
    them on deliberately.
    """
    fact = m[flags]
    modes = {
        "anomaly": fact.anomaly,
        "launch_blocking": fact.launch_blocking and not m.get(on_cpu),
        "distributed_debug": (fact.distributed_debug or "").upper() == "DETAIL",
        "program_profiler": fact.program_profiler and not fact.profiled_throughout,
        "profiled_throughout": fact.profiled_throughout,
    }
    return tuple(name for name, is_on in modes.items() if is_on)


SCALE_FINDING = 16
"""Steps that GradScaler may skip until its first scale, 2**16, has become 1; it halves after each."""
GROWTH_INTERVAL = 2000
"""Steps after which GradScaler doubles the scale, which may cost one more step."""


@metric("1", "share of steps skipped because of overflow")
def skipped_step_fraction(m: Metrics) -> float:
    """Share of optimizer steps that GradScaler skipped, not counting normal skips.

    Normal skips are 16 steps to reduce the scale from 2**16 to 1, and one step in 2000 when it tries to double the
    scale.
    """
    fact = m[scaler]
    if not fact.steps:
        raise Missing("GradScaler took no step", "Let the run reach an optimizer step.")
    return max(0.0, fact.skipped - SCALE_FINDING - fact.steps / GROWTH_INTERVAL) / fact.steps
