"""Activations fill the memory, but the backward pass needs only one block's activations at a time.

The backward pass can recompute activations instead of keeping them. A checkpointed block keeps only its input and runs
its forward pass twice. If only every N-th block is checkpointed, you pay only for the memory that you need.

Wrong when: memory is not short (recomputation adds up to a third to the time and does not make anything faster), or
optimizer state and gradients, not activations, fill the memory. Blocks that draw random numbers need
`preserve_rng_state`, which is the default.

Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2023, https://arxiv.org/abs/2205.05198
Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, https://arxiv.org/abs/1604.06174
"""

from advisor.metrics import Metrics, Missing, Threshold, gpu, input, memory, settings, step
from advisor.models.memory import FILL, MISSING_ROOM, Layers, Slope, checkpoint_throughput, layers
from advisor.models.state import Scenario, State
from advisor.rules._memory import pressure
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure
from advisor.units import ordinal, size

RULE = Rule(
    "Checkpoint every N-th block", Area.MEMORY, Confidence.EMPIRICAL, difficulty=2, supersedes=("offload-states",)
)

MIN_SHARE = Threshold(0.4, "Below this share of the peak, something other than activations fills the memory.")

# Recomputation time over the forward time of the checkpointed blocks: low, expected, high gain. Korthikanti et al.
# measured 30 to 39 % of a layer where a third was expected.
RECOMPUTE = (1.2, 1.0, 0.9)

# Least throughput worth mentioning, over the present one: the larger batch must more than make up for the
# recomputation.
WORTHWHILE = 1.05


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure, activations make up at least 40 % of its peak, and nothing is checkpointed yet,"""
    flags = m.get(settings.flags)
    if not m[memory.memory_pressure] or (flags and flags.checkpointing):
        return None
    activations, peak = m[memory.mem_activations], m[memory.mem_peak_allocated]
    if activations < m[MIN_SHARE] * peak:
        return None
    if m[settings.world_size] > 1 and m[memory.mem_optim] + m[memory.mem_grads] > activations:
        return None  # sharding states costs nothing and frees more
    return evidence(measure(m, memory.mem_activations, ">=", m[MIN_SHARE] * peak), *pressure(m))


def then(m: Metrics, found: Evidence) -> Advice:
    """then checkpoint every N-th block, with the largest N that frees enough memory."""
    model = m[settings.model]
    if model.blocks < 2 or not model.block:
        raise Missing(
            "The model has no equal blocks to checkpoint",
            "Wrap its largest modules in torch.utils.checkpoint.checkpoint by hand.",
        )
    blocks, need = layers(model.blocks, m[memory.mem_activations]), _need(m)
    every = blocks.every(need) if spelling(m).chooses_blocks else 1
    freed_bytes = blocks.kept(None) - blocks.kept(every)
    selection = f"every {ordinal(every)} of the {blocks.number}" if every > 1 else f"each of the {blocks.number}"
    shortfall = need - freed_bytes

    def effect(state: State, scenario: Scenario) -> State:
        return state.longer("backward", scenario.of(RECOMPUTE) * state.phases.get("forward", 0.0) / every)

    return Advice(
        then=f"Checkpoint {selection} {model.block} blocks: that frees about {size(freed_bytes)}; {size(need)} must "
        "become free"
        + (". Sharding or offloading must free the rest. " if shortfall > 0 else ". ")
        + _throughput(m, blocks, every),
        changes=spelling(m).checkpoint(model.block, every),
        basis="A checkpointed block keeps 1/17 of its activations (its input) and runs its forward pass twice; "
        "blocks are assumed to be alike and to hold all activations.",
        effect=effect,
        memory=-round(freed_bytes),
        intervention=Intervention(
            name="checkpointing", settings={"block": model.block, "every": every}, safety=Safety.MEMORY
        ),
        risk="No effect on results: the same numbers are recomputed.",
        fault=True,
    )


def _need(m: Metrics) -> float:
    """Return the bytes to free.

    This is the memory used above the safe share, plus room if an allocation failed or more memory is wanted. It is at
    least a safety margin.
    """
    capacity = m[gpu.device].memory_total
    excess = memory.used(m) - FILL * capacity
    wants_more = m[memory.oom_count] > 0 or m.goals.more_memory
    return max(excess + (MISSING_ROOM * capacity if wants_more else 0.0), (1 - FILL) * capacity)


def _throughput(m: Metrics, blocks: Layers, every: int) -> str:
    """Say whether the batch that the freed memory allows makes up for the recomputation."""
    sentence = "This makes the step fit in memory; it does not make it faster."
    loader, phases = m.get(input.loader), m.get(step.phase_seconds)
    if loader is None or not loader.batch_size or phases is None:
        return sentence
    batch, capacity = loader.batch_size, m[gpu.device].memory_total
    kept_bytes = blocks.kept(every)
    fixed_bytes = memory.used(m) - blocks.kept(None)
    larger_batch = Slope(fixed_bytes, kept_bytes / batch).largest(capacity)
    fixed_seconds = phases.get("optimizer", 0.0) + phases.get("communication", 0.0)
    sample_seconds = (phases.get("forward", 0.0) + phases.get("backward", 0.0)) / batch
    if larger_batch <= batch or sample_seconds <= 0:
        return sentence
    ratio = checkpoint_throughput(fixed_seconds, sample_seconds, batch, larger_batch, recompute=1 + 1 / (3 * every))
    if ratio < WORTHWHILE:
        return sentence
    return f"The batch of {larger_batch} that then fits processes about {ratio - 1:.0%} more samples a second."
