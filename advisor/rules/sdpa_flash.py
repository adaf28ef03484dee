"""Attention writes its scores to memory.

Attention written as a softmax between two matmuls reads and writes one score per pair of tokens several times, and
keeps it for the backward pass. `scaled_dot_product_attention` computes the same in one kernel, block by block, without
storing the scores. Depending on dtype, mask and GPU, it chooses flash attention, a memory-efficient kernel or cuDNN's
kernel.

Wrong when: you need the scores themselves (to display or return them), or modify them in a way that the function does
not support. The flash kernel accepts no dense mask and no bias; some other kernels accept no trained bias; on a CPU,
flash does not support dropout. If the program already calls the function, it has fallen back to writing the scores;
check what its kernels require.

Source: PyTorch: scaled_dot_product_attention, https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
Source: Dao et al., FlashAttention, https://github.com/Dao-AILab/flash-attention
"""

from advisor.metrics import Metrics, Threshold, attention, gpu, settings
from advisor.models.effects import COMPUTE, Triple, divide
from advisor.rules._phases import of_computing
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule(
    "Use scaled_dot_product_attention",
    Area.KERNELS,
    Confidence.EMPIRICAL,
    difficulty=2,
    supersedes=("ckpt-selective", "ckpt-every-n", "offload-states"),
)

MIN_SHARE = Threshold(0.10, "A smaller share of the step cannot gain 5 %, even at twice the speed.")

# Speed-up of attention on a GPU (assumption: from memory-efficient on short sequences to flash on long ones).
SPEEDUP: Triple = (1.5, 2.5, 5.0)

# Measured on 2 cores, forward and backward in fp32: 1.2 to 1.7 at 64 to 256 tokens, 1.9 to 4.0 at 1024 and 2048.
SPEEDUP_CPU: Triple = (1.2, 1.6, 3.5)

CODE = """\
# instead of softmax(query @ key.transpose(-2, -1) / sqrt(size) + mask) @ value, each (batch, heads, tokens, size)
out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)  # or attn_mask=mask
# a model of transformers: from_pretrained(..., attn_implementation="sdpa")
"""


def when(m: Metrics) -> Evidence | None:
    """If attention writes its scores to memory and takes at least 10 % of the step, and a kernel exists that does not
    write them,
    """
    step_share = _share_of_step(m)
    if step_share < m[MIN_SHARE] or (m.get(settings.on_cpu) and m[attention.scores_dropped_out]):
        return None
    return evidence(
        measure(m, attention.materialized_attention_share, ">=", MIN_SHARE),
        note=f"{m[attention.sequence_length]} tokens",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then let scaled_dot_product_attention compute it in one kernel."""
    on_cpu = bool(m.get(settings.on_cpu))
    speedup = SPEEDUP_CPU if on_cpu else SPEEDUP
    score_bytes = None if on_cpu else m.get(attention.scores_bytes)
    low, expected, high = speedup
    return Advice(
        then=f"Use scaled_dot_product_attention: {share(_share_of_step(m))} of the step goes into attention over "
        f"{found.note}, which writes every score to memory.",
        changes=(python(CODE),),
        basis=f"Attention becomes {low:g}, {expected:g} or {high:g} times as fast, "
        + ("as measured on a CPU." if on_cpu else "an assumption that no trial has tested yet."),
        effect=divide(*COMPUTE, by=speedup, portion=of_computing(m, _share_of_step(m))),
        memory=None if score_bytes is None else -round(score_bytes),
        risk="Low: the same result, summed in another order. Pass the mask: without one, every token attends to "
        "all others.",
    )


def _share_of_step(m: Metrics) -> float:
    """Return the share of the step (0 to 1); on a CPU, operators make up the whole step."""
    return m[attention.materialized_attention_share] * (
        1.0 if m.get(settings.on_cpu) else m[gpu.gpu_computing_fraction]
    )
