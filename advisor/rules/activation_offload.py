"""Blocks are checkpointed, and their inputs still fill GPU memory.

A checkpointed block keeps its input until the backward pass. Over all blocks of a long sequence, that is more than what
the block under computation needs. The host's memory can keep these inputs: each goes there after its block's forward
pass and returns before its backward pass. On a separate stream, the copies overlap the computation.

Wrong when: the copies take longer than the blocks, as with short sequences on a fast GPU; or the data needs the host's
memory.

Source: PyTorch: Hooks for autograd saved tensors, saving tensors to CPU, https://docs.pytorch.org/tutorials/intermediate/autograd_saved_tensors_hooks_tutorial.html
Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2023, https://arxiv.org/abs/2205.05198
"""

from advisor.metrics import Metrics, Missing, Threshold, host, memory, settings, step
from advisor.models.effects import lengthen
from advisor.models.memory import LAYER_OVER_BOUNDARY
from advisor.models.sharding import PCIE
from advisor.rules._memory import pressure
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, measure, python
from advisor.units import seconds, size

RULE = Rule(
    "Keep the inputs of checkpointed blocks in the host's memory",
    Area.OFFLOAD,
    Confidence.HEURISTIC,
    difficulty=2,
    cap=Severity.SUGGEST,
)

MIN_SHARE = Threshold(0.25, "Below this share of the peak, offloading frees too little for its cost (assumption).")

WAITING = 2
"""Blocks whose inputs are on the GPU at any time: one is used, one is copied (assumption)."""

CODE = """\
with torch.autograd.graph.save_on_cpu(pin_memory=True):  # around the forward pass of the checkpointed blocks
    output = model(inputs)
# hides the copies: torchtune.training.OffloadActivations(use_streams=True); trl: SFTConfig(activation_offloading=True)
"""


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure although blocks are checkpointed, their inputs make up at least 25 % of its peak, and
    the host has room for them,
    """
    if not m[memory.memory_pressure] or not m[settings.flags].checkpointing:
        return None
    freed_bytes, limit = _freed(m), m[MIN_SHARE] * m[memory.mem_peak_allocated]
    room = measure(m, host.host_memory_available, ">=", freed_bytes * m[host.local_ranks])
    if freed_bytes < limit or not room.holds:
        return None
    facts = (measure(m, memory.mem_activations, ">=", limit), room, *pressure(m))
    return Evidence(facts, f"the inputs of {m[settings.model].blocks} {m[settings.model].block} blocks")


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep the inputs of checkpointed blocks in the host's memory."""
    freed_bytes = _freed(m)
    copy_seconds = freed_bytes / PCIE
    phases = m.get(step.phase_seconds) or {}
    exposed_seconds = sum(max(0.0, copy_seconds - phases.get(phase, 0.0)) for phase in ("forward", "backward"))
    return Advice(
        then=f"Keep {found.note} in the host's memory: that frees about {size(freed_bytes)} of GPU memory, takes "
        f"{size(freed_bytes * m[host.local_ranks])} of the node's memory and makes a step up to "
        f"{seconds(2 * copy_seconds)} longer.",
        changes=(python(CODE),),
        basis="A block's input is 1/17 of its activations, and one block at a time is recomputed. The inputs cross the "
        "bus twice at 25 GB/s; none of this time is hidden, half of it, or as much as forward and backward "
        "passes take.",
        effect=lengthen("backward", (2 * copy_seconds, max(copy_seconds, exposed_seconds), exposed_seconds)),
        memory=-round(freed_bytes),
        host_memory=round(freed_bytes * m[host.local_ranks]),
        risk="No effect on results: the numbers do not change.",
        fault=True,
    )


def _freed(m: Metrics) -> float:
    """Return the bytes of blocks' inputs beyond those that are in use."""
    model = m[settings.model]
    if model.blocks <= WAITING or not model.block:
        raise Missing("The model has no equal blocks", "Offload the largest saved tensors by hand.")
    return m[memory.mem_activations] * (model.blocks - WAITING) / (model.blocks + LAYER_OVER_BOUNDARY)
