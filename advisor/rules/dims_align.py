"""Matmuls with a dimension that is misaligned for tensor cores run at half speed.

Tensor cores load 16 bytes at once: 8 numbers of fp16 or bf16, 16 of fp8. If a dimension of a matmul is not a multiple
of that, a slower kernel runs. A typical case is a vocabulary of 50257. Padding it with zero columns to the next
multiple of 64 costs almost nothing.

Wrong when: the data determines that dimension and it differs between batches, or you cannot keep the padded rows out of
the loss, the sampling and the saved weights.

Source: NVIDIA: Matrix Multiplication Background, https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html
Source: Bekman, Machine Learning Engineering, https://github.com/stas00/ml-engineering
"""

from math import ceil

from advisor.metrics import Metrics, Threshold, gpu, matmul
from advisor.models.effects import Triple, divide_matmul
from advisor.models.gpus import VOLTA
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Pad matrices to sizes that suit tensor cores", Area.PRECISION, Confidence.HEURISTIC, difficulty=2)

MIN_SHARE = Threshold(0.10, "With a smaller share of the GPU's time, even doubling the speed gains less than 5 %.")

MAX_EFFICIENCY = Threshold(0.5, "The shape itself explains some loss of speed, but not half of it.")

# An A100 is fastest at multiples of 64 fp16 numbers (NVIDIA, Matrix Multiplication Background). If padding to 64 would
# add more than a tenth, pad to the number that tensor cores load at once.
MULTIPLES = (64, 16, 8)
MOST_ADDED = 0.1

# Speed-up of those matmuls (assumption).
SPEEDUP: Triple = (1.1, 1.3, 2.0)

CODE = """\
# {length} -> {padded}, a multiple of {pad}; for example a vocabulary
embedding = torch.nn.Embedding({padded}, hidden)
head = torch.nn.Linear(hidden, {padded}, bias=False)
logits = head(states)[..., :{length}]  # a view: the loss does not see the padding
# a model of transformers: model.resize_token_embeddings(pad_to_multiple_of={pad})
"""


def when(m: Metrics) -> Evidence | None:
    """If 16-bit or fp8 matmuls with a dimension that is not a multiple of 8 or 16 take at least 10 % of GPU time,
    at less than half the speed of comparable aligned matmuls,
    """
    if m[gpu.compute_capability] < VOLTA:
        return None
    misaligned_share = measure(m, matmul.misaligned_matmul_share, ">=", MIN_SHARE)
    return (
        evidence(misaligned_share, measure(m, matmul.misaligned_efficiency, "<", MAX_EFFICIENCY))
        if misaligned_share.holds
        else None
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then pad that dimension to a multiple of 64, or of 16 or 8 if it is short."""
    length = m[matmul.misaligned_length]
    candidates = [(multiple, multiple * ceil(length / multiple)) for multiple in MULTIPLES]
    multiple, padded_length = next(
        (candidate for candidate in candidates if candidate[1] <= (1 + MOST_ADDED) * length), candidates[-1]
    )
    return Advice(
        then=f"Pad the length {length} to {padded_length}: matmuls with this length take "
        f"{share(m[matmul.misaligned_matmul_share])} of the GPU's time at {share(m[matmul.misaligned_efficiency])} of "
        "the speed of others.",
        changes=(python(CODE.format(length=length, padded=padded_length, pad=multiple)),),
        basis="These matmuls become 1.1, 1.3 or 2 times as fast.",
        effect=divide_matmul(SPEEDUP, portion=min(1.0, m[matmul.misaligned_matmul_share] / m[gpu.matmul_share])),
        risk="Low for results; shapes change, so saved weights also need padding.",
    )
