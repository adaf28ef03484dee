"""The optimizer's moments fill the memory, and they cannot be sharded further over other ranks.

Adam keeps two numbers per parameter; in fp32 they take twice the size of the weights. In 8-bit blocks with one scale
each, they take a quarter of that, and the loss curve stays the same. Embeddings keep 32 bits, because their gradients
are sparse and uneven.

Wrong when: activations fill the memory, as in convolutional networks; you could shard the state over several ranks,
which does not change the update; or results must be reproducible to the bit. Tensors of fewer than 4096 elements stay
in fp32.

Source: Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022, https://arxiv.org/abs/2110.02861
"""

from advisor.metrics import Metrics, Threshold, memory, settings
from advisor.models.effects import remove
from advisor.models.memory import MOMENTS, eight_bit_moments
from advisor.rules._memory import pressure
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, Severity, measure
from profiler.schema import OptimizerFact

RULE = Rule(
    "Keep the optimizer's moments in 8 bits",
    Area.MEMORY,
    Confidence.EMPIRICAL,
    difficulty=2,
    cap=Severity.SUGGEST,
    supersedes=("offload-states",),
)

MIN_SHARE = Threshold(
    0.25, "Below this share of the peak, saving three quarters of the state frees less than a fifth of the memory."
)

# Optimizers that have an 8-bit counterpart with the same arguments.
ADAMS = ("Adam", "AdamW")

# The update reads less and converts more: as fast as before, plus or minus a twentieth (assumption).
FASTER = (-0.05, 0.0, 0.05)


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure, Adam's state makes up at least 25 % of the memory peak, and there is only one rank
    or the state is already sharded,
    """
    optimizer = m[settings.optimizer]
    if not m[memory.memory_pressure] or optimizer.name not in ADAMS or not optimizer.module.startswith("torch.optim"):
        return None
    if (optimizer.device or "").startswith("cpu") or (
        m[settings.world_size] > 1 and not (m[settings.flags].fsdp or m[settings.flags].zero_stage)
    ):
        return None
    state_bytes, limit = m[memory.mem_optim], m[MIN_SHARE] * m[memory.mem_peak_allocated]
    if state_bytes < limit or _freed(m, optimizer) <= 0:
        return None
    return Evidence(
        (measure(m, memory.mem_optim, ">=", limit), *pressure(m)),
        note=f"{optimizer.name} of {optimizer.parameters / 1e9:.2f} billion parameters",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep the optimizer's moments in 8 bits, and those of embeddings in 32."""
    optimizer, freed_bytes = m[settings.optimizer], _freed(m, m[settings.optimizer])
    return Advice(
        then=f"Keep the moments of {optimizer.name} in 8 bits: its state shrinks from {m[memory.mem_optim] / 1e9:.2f} "
        f"to {(m[memory.mem_optim] - freed_bytes) / 1e9:.2f} GB.",
        changes=spelling(m).eight_bit(),
        basis="2.03 bytes per parameter for both moments and their scales, 8 bytes in tensors of fewer than 4096 "
        "elements. All tensors are assumed to have the same size.",
        effect=remove("optimizer", shares=FASTER),
        memory=-round(freed_bytes),
        intervention=Intervention(name="optimizer_8bit", settings={"name": optimizer.name}, safety=Safety.TRAJECTORY),
        risk="Medium: rounding changes the update. Compare the loss with that of an unchanged run.",
        fault=True,
    )


def _freed(m: Metrics, fact: OptimizerFact) -> float:
    """Return the bytes freed on this rank; for a sharded state, only the rank's own part counts.

    Two moments never take more than 8 bytes per element.
    """
    copies = m[settings.data_parallel_size] / m[settings.shard_size]
    elements = max(fact.parameters * copies / m[settings.world_size], m[memory.mem_optim] / MOMENTS["adamw"])
    tensor_elements = round(elements / max(1, fact.tensors))
    return m[memory.mem_optim] - eight_bit_moments([tensor_elements] * max(1, fact.tensors))
