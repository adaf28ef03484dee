"""Build the what-if model of a run's memory: which settings a reader may vary, and why the rest are fixed."""

from dataclasses import dataclass, replace

from advisor.metrics.base import Metrics, Missing
from advisor.metrics.gpu import device
from advisor.metrics.input import loader
from advisor.metrics.memory import mem_activations, mem_grads, mem_headroom, mem_optim, mem_params, memory_peak, used
from advisor.metrics.settings import flags, model, optimizer, shard_size, world_size
from advisor.metrics.sharding import data_parallel, stage, unit, whole
from advisor.models.anatomy import INTERVALS, Anatomy, MemorySettings
from advisor.models.memory import States
from advisor.units import ordinal

# Names in torch and other libraries, and in advisor/models/memory.py. SGD without state has nothing to compare with.
OPTIMIZERS = {"AdamW": "adamw", "Adam": "adam", "SGD": "momentum", "Lion": "lion", "AdamW8bit": "adamw8bit"}
LABELS = {
    "adamw": "AdamW",
    "adamw8bit": "AdamW, moments in 8 bits",
    "lion": "Lion",
    "momentum": "SGD with momentum",
    "sgd": "SGD without momentum",
}
"""Optimizers on offer; Adam needs the same memory as AdamW."""

STAGES = (
    "0: nothing is sharded",
    "1: optimizer state is sharded",
    "2: gradients as well",
    "3: weights as well (FSDP)",
)
MOST_RANKS = 64
LARGER = 4
"""Largest batch on offer, as a multiple of the current one. Beyond that, other factors change too."""


@dataclass(frozen=True, slots=True)
class Control:
    """A setting that a reader may vary; `name` is the field of `MemorySettings`."""

    name: str
    label: str
    choices: tuple[tuple[str, str], ...]
    """Values and their labels."""
    chosen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The memory settings that a reader may vary. A setting without a control stays as it is."""

    anatomy: Anatomy
    largest_batch: int | None = None
    controls: tuple[Control, ...] = ()
    fixed: tuple[str, ...] = ()
    """The settings that cannot be varied and why, one sentence each."""


@dataclass(frozen=True, slots=True)
class _Sharding:
    """The sharding of the model states over the ranks, if it is known."""

    states: States
    stage: int = 0
    ranks: int = 1
    unit: float = 0.0
    stages: int = 0
    """Number of stages on offer."""
    why_not: str = ""


def what_if(m: Metrics) -> WhatIf:
    """Return the what-if model of this run's memory.

    Raises:
        Missing: the parts of the run's memory were not measured, or the size of the GPU's memory is unknown.
    """
    peak, capacity = m[memory_peak], m[device].memory_total
    if not capacity:
        raise Missing("The size of the GPU's memory is unknown", "Record on a GPU whose driver reports it.")
    sharding = _sharding(m)
    in_use = peak.reserved_peak if m.get(mem_headroom) is None else used(m)
    batch, no_batch = _batch(m)
    blocks, no_blocks = _blocks(m)
    moments, no_moments = _moments(m)
    autocast, no_autocast = _autocast(m)
    states_only = Anatomy(
        now=MemorySettings(batch=batch or 1, stage=sharding.stage, ranks=sharding.ranks, moments=moments),
        capacity=capacity,
        states=sharding.states,
        unit=sharding.unit,
        activations=0.0,
        rest=0.0,
        blocks=blocks,
        parameters=autocast or 0,
    )
    anatomy = replace(
        states_only,
        # weights gathered now were measured as part of the activations
        activations=max(0.0, peak.allocated_peak - states_only.parts(states_only.now).total),
        rest=max(0.0, in_use - peak.allocated_peak),
    )
    return WhatIf(
        anatomy=anatomy,
        largest_batch=LARGER * batch if batch else None,
        controls=controls(anatomy, sharding.stages, autocast=autocast is not None),
        fixed=tuple(filter(None, (no_batch, sharding.why_not, no_blocks, no_moments, no_autocast))),
    )


def controls(run: Anatomy, stages: int, *, autocast: bool) -> tuple[Control, ...]:
    """Return the controls that offer a choice, with that many ZeRO stages."""
    settings = run.now
    ranks = sorted({1, settings.ranks, *(2**power for power in range(1, MOST_RANKS.bit_length()))}) if stages else ()
    intervals = [
        (str(choice), f"each of the {run.blocks} blocks" if choice == 1 else f"every {ordinal(choice)} block")
        for choice in INTERVALS
        if choice <= run.blocks // 2
    ]
    optimizers = {settings.moments: LABELS.get(settings.moments, "Adam"), **LABELS} if settings.moments else {}
    precisions = [("", "FP32, as recorded"), ("yes", "16-bit autocast")] if autocast else []
    all_controls = (
        Control("ranks", "GPUs", tuple((str(choice), str(choice)) for choice in ranks), str(settings.ranks)),
        Control(
            "stage", "ZeRO stage", tuple((str(stage), STAGES[stage]) for stage in range(stages)), str(settings.stage)
        ),
        Control("every", "Activation checkpointing", (("", "none"), *intervals)),
        Control("moments", "Optimizer", tuple(optimizers.items()), settings.moments or ""),
        Control("autocast", "Precision", tuple(precisions)),
    )
    return tuple(control for control in all_controls if len(control.choices) > 1)


def _sharding(m: Metrics) -> _Sharding:
    own_states = States(m[mem_params], m[mem_grads], m[mem_optim])
    try:
        if m[world_size] > 1 and not data_parallel(m):
            return _Sharding(
                own_states, why_not="GPUs and ZeRO: the ranks do not train one model with data parallelism."
            )
        zero_stage, states = stage(m), whole(m)
    except Missing as missing:
        return _Sharding(own_states, why_not=f"GPUs and ZeRO: {missing.what[:1].lower()}{missing.what[1:]}.")
    try:
        parameters, element = unit(m)
    except Missing:
        reason = "ZeRO stage 3: the model has no repeated blocks that could be gathered one by one."
        return (
            _Sharding(states, zero_stage, m[shard_size], 0.0, 3, reason)
            if zero_stage < 3
            else _Sharding(own_states, why_not=reason)
        )
    return _Sharding(states, zero_stage, m[shard_size], parameters * element, 4)


def _batch(m: Metrics) -> tuple[int | None, str]:
    fact = m.get(loader)
    if fact is None or not fact.batch_size:
        return None, "Batch size: the loader's batch size is unknown."
    if not m[mem_activations]:
        return None, "Batch size: no activations were measured that would grow with it."
    return fact.batch_size, ""


def _blocks(m: Metrics) -> tuple[int, str]:
    fact, settings = m.get(model), m.get(flags)
    if settings is None or settings.checkpointing:
        return 0, "Activation checkpointing: " + (
            "the recording does not show whether it is turned on."
            if settings is None
            else "it is turned on, so the memory that it frees was not measured."
        )
    if fact is None or fact.blocks < 2:
        return 0, "Activation checkpointing: the model has no repeated blocks."
    return fact.blocks, ""


def _moments(m: Metrics) -> tuple[str | None, str]:
    fact, model_fact = m.get(optimizer), m.get(model)
    name = OPTIMIZERS.get(fact.name) if fact is not None else None
    if fact is None or name is None or not m[mem_optim]:
        return None, f"Optimizer: the state size of {fact.name if fact else 'it'} is unknown."
    if model_fact is None or set(model_fact.dtypes) != {"float32"}:
        return None, "Optimizer: the state of other optimizers is known only for fp32 weights."
    return name, ""


def _autocast(m: Metrics) -> tuple[int | None, str]:
    """Return the number of parameters that autocast would copy, or None and the reason why it cannot be chosen."""
    settings, model_fact = m.get(flags), m.get(model)
    if settings is None or model_fact is None:
        return None, "Precision: the run's precision was not recorded."
    if settings.autocast or set(model_fact.dtypes) != {"float32"}:
        return None, "Precision: the run already uses 16 bits."
    return model_fact.parameters, ""
