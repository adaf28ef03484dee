"""Attention scores stay in memory until the backward pass.

If attention is written as matmul, softmax, matmul, every layer keeps its scores: one number per head and pair of
tokens, and more with dropout. If 5 a s / h is 17 or more (a heads, s tokens, h hidden size), the scores are at least a
third of the activations of a layer. Flash attention never stores them and is faster. If you cannot use it, recompute
only this core of attention: that frees the same memory and takes a few percent more time.

A trial recomputes the core and also the norms and activation functions of a block. Its measured time includes the
overhead of selecting operators, which a checkpoint around the core does not have.

Wrong when: something else fills the memory, such as optimizer state, or logits in a model with few layers; or no kernel
supports the code between attention's two matmuls, and computing it twice is expensive.

Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2023, https://arxiv.org/abs/2205.05198
Source: PyTorch, scaled_dot_product_attention, https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from advisor.metrics import Metrics, Threshold, attention, memory, settings
from advisor.models.activations import Layer
from advisor.models.effects import COMPUTE, remove
from advisor.rules._memory import pressure
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, measure, python

RULE = Rule(
    "Do not store attention scores",
    Area.MEMORY,
    Confidence.EMPIRICAL,
    difficulty=2,
    supersedes=("ckpt-every-n", "offload-states"),
)

MIN_SCORES = Threshold(
    17,
    "Value of 5as/h at which attention scores are a third of a layer's activations; the rest is 34 (Korthikanti et "
    "al.).",
)

# Time that recomputing attention's core adds, as a negative share of forward and backward: low, expected, high gain.
# The paper measured 7 %, and 4 % with sequence parallelism; by floating-point operations, it is 1.6 to 2.7 %.
SLOWER = (-0.07, -0.04, -0.02)


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure, nothing is checkpointed, and unfused attention keeps scores that are at least a
    third of a layer's activations (5as/h is 17 or more),
    """
    if not m[memory.memory_pressure] or m[settings.flags].checkpointing or m[attention.attention_is_flash]:
        return None
    sequence, hidden, heads = m[attention.sequence_length], m[attention.hidden_size], m[attention.attention_heads]
    ratio = Layer(sequence=sequence, batch=1, hidden=hidden, heads=heads).scores_ratio
    if ratio < m[MIN_SCORES]:
        return None
    metrics = (attention.scores_bytes, attention.sequence_length, attention.attention_heads, attention.hidden_size)
    return Evidence((*(measure(m, metric) for metric in metrics), *pressure(m)), f"5as/h = {ratio:.0f}")


def then(m: Metrics, found: Evidence) -> Advice:
    """then compute attention in one kernel or, where that is not possible, recompute only its core."""
    freed_bytes, model = min(m[attention.scores_bytes], m[memory.mem_activations]), m.get(settings.model)
    intervention = None
    if model is not None and model.block:  # a kernel cannot be inserted from outside
        intervention = Intervention(
            name="selective_recompute",
            settings={"block": model.block},
            safety=Safety.MEMORY,
            leaves="attention in one kernel, which is faster",
        )
    return Advice(
        then=f"Call scaled_dot_product_attention, which never stores the scores: {freed_bytes / 1e9:.2f} GB less, and "
        "faster. If the model does something between the matmuls that this function does not offer, recompute the "
        "core of attention in the backward pass: that frees the same memory and takes a few percent more time.",
        changes=(
            python(
                "import torch.nn.functional as F\n\n"
                "# each (batch, heads, tokens, size); is_causal or attn_mask unchanged\n"
                "out = F.scaled_dot_product_attention(\n"
                "    query, key, value, dropout_p=dropout if model.training else 0.0, is_causal=True\n"
                ")\n"
            ),
            python(
                "from torch.utils.checkpoint import checkpoint\n\n"
                "# or: core is the function from the matmul of query and key to the matmul with value\n"
                "out = checkpoint(core, query, key, value, use_reentrant=False)\n"
            ),
        ),
        basis="Memory: the recorded shapes of the scores, at most all activations. Time: 2, 4 or 7 % more for the "
        "forward and backward pass, from published measurements of recomputation; flash attention saves time instead.",
        effect=remove(*COMPUTE, shares=SLOWER),
        memory=-round(freed_bytes),
        intervention=intervention,
        risk="No effect on results except rounding, if the mask stays the same; recomputed dropout needs "
        "`preserve_rng_state`, the default.",
        fault=True,
    )
