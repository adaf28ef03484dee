"""Matrix products of a length that tensor cores do not like run at half speed.

Tensor cores load 16 bytes at once: 8 numbers of fp16 or bf16, 16 of fp8. Where a length of a product is no multiple of
that, a slower kernel computes it. The usual case is a vocabulary such as 50257; zero columns up to the next multiple of
64 cost nothing to speak of.

Wrong when: the length is given by the data and differs from batch to batch, or the padded rows are not kept out of the
loss, of sampling and of the weights that are saved.
"""

from __future__ import annotations

from math import ceil

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.gpu import compute_capability, matmul_share
from advisor.metrics.matmul import misaligned_efficiency, misaligned_length, misaligned_matmul_share
from advisor.models.effects import Triple, divide_matmul
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import share

MIN_SHARE = Threshold(0.10, "With less of the GPU's time even twice the speed brings under 5 %.")

MAX_EFFICIENCY = Threshold(0.5, "Some loss is due to the shape; half of what such products reach here is not.")

# Volta: the first with tensor cores.
CAPABILITY = (7, 0)

# An A100 is fastest at multiples of 64 fp16 numbers (NVIDIA, Matrix Multiplication Background); what 64 would lengthen
# by more than a tenth gets along with what tensor cores load at once.
MULTIPLES = (64, 16, 8)
MOST_ADDED = 0.1

# Those products become so many times as fast (assumption).
SPEEDUP: Triple = (1.1, 1.3, 2.0)

CODE = """\
# {length} -> {padded}, a multiple of {pad}: a vocabulary, say
embedding = torch.nn.Embedding({padded}, hidden)
head = torch.nn.Linear(hidden, {padded}, bias=False)
logits = head(states)[..., :{length}]  # a view: the loss does not see the padding
# a model of transformers: model.resize_token_embeddings(pad_to_multiple_of={pad})
"""


def when(m: Metrics) -> Evidence | None:
    """If a tenth of the GPU's time or more goes into 16-bit or fp8 products of a length that is no multiple of 8 or 16,
    at less than half the speed of their aligned peers,
    """
    if m[compute_capability] < CAPABILITY:
        return None
    part = m[misaligned_matmul_share]
    if part < m[MIN_SHARE] or m[misaligned_efficiency] >= m[MAX_EFFICIENCY]:
        return None
    return Evidence(
        (
            Fact(misaligned_matmul_share, part, m[MIN_SHARE]),
            Fact(misaligned_efficiency, m[misaligned_efficiency], m[MAX_EFFICIENCY], "<"),
        )
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then pad that length to a multiple of 64, or of 16 or 8 if it is short."""
    length = m[misaligned_length]
    multiple = _multiple(length)
    padded = _padded(length, multiple)
    return Advice(
        then=f"Pad the length {length} to {padded}: products that have it take {share(m[misaligned_matmul_share])} of "
        f"the GPU's time at {share(m[misaligned_efficiency])} of the speed of others.",
        changes=(Change(language="python", code=CODE.format(length=length, padded=padded, pad=multiple)),),
        basis="Those products become 1.1, 1.3 or 2 times as fast.",
        effect=divide_matmul(SPEEDUP, portion=min(1.0, m[misaligned_matmul_share] / m[matmul_share])),
        risk="Low for results; shapes change, so saved weights need padding as well.",
    )


def _multiple(length: int) -> int:
    """The largest that lengthens it little."""
    little = (multiple for multiple in MULTIPLES if _padded(length, multiple) <= (1 + MOST_ADDED) * length)
    return next(little, MULTIPLES[-1])


def _padded(length: int, multiple: int) -> int:
    return multiple * ceil(length / multiple)


RULE = Rule(
    title="Pad matrices to what tensor cores like",
    tier=Tier.PRECISION,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=2,
    sources=(
        Source(
            "NVIDIA: Matrix Multiplication Background",
            "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
        ),
        Source("Bekman, Machine Learning Engineering", "https://github.com/stas00/ml-engineering"),
    ),
)
