"""Attention over long sequences takes most of the step, although its kernel is already efficient.

The work of attention grows with the square of the sequence length. With a sliding window, where a token sees only the
last few thousand tokens before it, the work grows linearly. Models often mix layers with and without a window.

Wrong when: the relevant tokens may be anywhere in the sequence, or you only fine-tune a model that was trained with
full attention. A window makes it a different model; measure its quality again.

Source: PyTorch: FlexAttention, https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html
Source: Beltagy et al., Longformer: The Long-Document Transformer, 2020, https://arxiv.org/abs/2004.05150
"""

from advisor.metrics import Metrics, Threshold, attention, gpu
from advisor.models.effects import COMPUTE, remove, up_to
from advisor.rules._phases import of_computing
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure, python
from advisor.units import share

RULE = Rule("Try attention with a sliding window", Area.MODEL, Confidence.HEURISTIC, difficulty=3, cap=Severity.INFO)

MIN_LENGTH = Threshold(8192, "In shorter sequences, a window of a few thousand tokens saves little.")

MIN_SHARE = Threshold(0.40, "With a smaller share in attention, the rest of the model is the bottleneck.")

# Number of tokens that a token sees, as in models with sliding windows (Mistral 7B).
WINDOW = 4096

# Share of the omitted work that saves time: blocks at the window's edges are computed completely (assumption).
REALIZED = 0.6

CODE = """\
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

def window(batch, head, query, key):
    return (query >= key) & (query - key < {window})

mask = create_block_mask(window, B=None, H=None, Q_LEN={length}, KV_LEN={length})  # once
attention = torch.compile(flex_attention)
out = attention(query, key, value, block_mask=mask)
"""


def when(m: Metrics) -> Evidence | None:
    """If fused attention over at least 8192 tokens takes at least 40 % of the step,"""
    m[gpu.device]
    attention_share = measure(m, attention.attention_share, ">=", MIN_SHARE)
    if attention_share.value * m[gpu.gpu_computing_fraction] < m[MIN_SHARE] or not m[attention.attention_is_flash]:
        return None
    return evidence(attention_share, measure(m, attention.sequence_length, ">=", MIN_LENGTH))


def then(m: Metrics, found: Evidence) -> Advice:
    """then try a sliding attention window, if the model may change."""
    length = m[attention.sequence_length]
    return Advice(
        then=f"If the model may change, try attention with a sliding window of {WINDOW} tokens: "
        f"{share(m[attention.attention_share])} of the GPU's time goes into attention over all {length}.",
        changes=(python(CODE.format(window=WINDOW, length=length)),),
        basis="Attention time shrinks by the share of tokens outside the window, at most by 60 %.",
        effect=remove(
            *COMPUTE,
            shares=up_to(REALIZED * max(0.0, 1 - WINDOW / length)),
            portion=of_computing(m, m[attention.attention_share] * m[gpu.gpu_computing_fraction]),
        ),
        memory=0,
        risk="High: it is another model. Compare its quality on sequences with long-range dependencies.",
    )
