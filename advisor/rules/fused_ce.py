"""The loss over a large vocabulary takes much time or memory.

The logits of a micro-batch hold one number per token and vocabulary entry, once in 16 bits and once in fp32. A fused
loss computes the logits and the loss together, one chunk at a time, so the full logits are never in memory.

Wrong when: the logits are used for something else (distillation, a metric in every step), or the GPU has no Triton
support.

Source: Liger Kernel, https://github.com/linkedin/Liger-Kernel
Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2023, https://arxiv.org/abs/2205.05198
"""

from advisor.metrics import Metrics, Threshold, gpu, matmul, memory
from advisor.models.effects import COMPUTE, Triple, remove
from advisor.models.gpus import VOLTA
from advisor.rules._phases import of_computing
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share, size

RULE = Rule("Fuse the head with the loss", Area.KERNELS, Confidence.EMPIRICAL, difficulty=2)

MIN_SHARE = Threshold(0.05, "Share of the step; a smaller share gains too little to be worth a change.")

MIN_MEMORY = Threshold(0.15, "Share of the peak; a smaller share frees too little memory.")

MIN_VOCABULARY = Threshold(10_000, "With fewer classes, launch overhead dominates; language models have more.")

# Shares saved of the time of the loss and the preceding matmul, and of the logits' memory (Liger's authors report a
# whole model 20 % faster with 60 % less memory).
REMOVED: Triple = (0.1, 0.2, 0.4)
FREED = 0.8

CODE = """\
from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

loss_function = LigerFusedLinearCrossEntropyLoss()
states = model.backbone(inputs)  # the hidden states, before the head
loss = loss_function(model.head.weight, states.flatten(0, 1), targets.flatten())
# a model of transformers: TrainingArguments(..., use_liger_kernel=True)
"""


def when(m: Metrics) -> Evidence | None:
    """If the cross-entropy over a vocabulary of at least 10,000 entries takes at least 5 % of the step, or its
    logits take at least 15 % of the memory peak,
    """
    if m[gpu.compute_capability] < VOLTA:
        return None
    loss_share = m[gpu.cross_entropy_share] * m[gpu.gpu_computing_fraction]
    if not loss_share:  # no loss over classes, so no logits either
        return None
    vocabulary = measure(m, matmul.vocabulary, ">=", MIN_VOCABULARY)
    if not vocabulary.holds:
        return None
    if loss_share >= m[MIN_SHARE]:
        return Evidence((measure(m, gpu.cross_entropy_share, ">=", MIN_SHARE), vocabulary))
    return evidence(measure(m, matmul.logits_bytes, ">=", m[MIN_MEMORY] * m[memory.mem_peak_allocated]), vocabulary)


def then(m: Metrics, found: Evidence) -> Advice:
    """then compute head and loss together, one chunk of tokens at a time."""
    return Advice(
        then=f"Compute head and loss together: the logits of {m[matmul.logits].rows} tokens over "
        f"a vocabulary of {m[matmul.vocabulary]} take {size(m[matmul.logits_bytes])}, and the loss takes "
        f"{share(m[gpu.cross_entropy_share])} of the GPU's time.",
        changes=(python(CODE),),
        basis="Saves 10, 20 or 40 % of the time of the loss and the preceding matmul, and 80 % of the logits' memory.",
        effect=remove(
            *COMPUTE,
            shares=REMOVED,
            portion=of_computing(
                m, (m[gpu.cross_entropy_share] + m[matmul.head_share]) * m[gpu.gpu_computing_fraction]
            ),
        ),
        memory=-round(FREED * m[matmul.logits_bytes]),
        risk="Low: the same loss, summed in another order. The logits can no longer be inspected.",
    )
