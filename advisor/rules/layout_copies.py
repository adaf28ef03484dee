"""Much of the GPU's time goes into copies that only reorder a tensor's elements in memory.

`transpose()` and `permute()` move no data. The copy comes later: `contiguous()`, a `reshape()` that cannot return a
view, or a matmul of a tensor that several heads or positions share. Such a copy reads and writes the whole tensor and
computes nothing. Most have an alternative: an operator that accepts any strides, or a layer that writes the right order
directly.

Wrong when: a custom kernel requires this order, and nothing before it can write it.

Source: PyTorch: Tensor Views, https://docs.pytorch.org/docs/stable/tensor_view.html
Source: PyTorch: scaled_dot_product_attention, https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from advisor.metrics import Metrics, Threshold, copies, gpu
from advisor.models.effects import Triple, divide_membound
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Avoid copies into another memory layout", Area.KERNELS, Confidence.HEURISTIC, difficulty=2)

MIN_SHARE = Threshold(0.10, "Share of the step: halving a smaller share gains less than 5 %.")

# Speed-up of these copies: a fifth, half or nine tenths of them have an alternative (assumption).
FEWER: Triple = (1.25, 2.0, 10.0)

CODE = """\
# attention: views only; scaled_dot_product_attention takes any strides
query, key, value = (part.unflatten(-1, (-1, head_size)).transpose(1, 2) for part in (query, key, value))
out = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)  # repeats no keys (torch 2.5)
# elsewhere: multiply along the axis where it is, instead of permute(), contiguous() and a matmul
out = (weight.t() @ inputs.flatten(2)).unflatten(2, inputs.shape[2:])  # b c h w -> b d h w
# images: model.to(memory_format=torch.channels_last), and the inputs too, so that every layer agrees
"""


def when(m: Metrics) -> Evidence | None:
    """If copies that only change the order of elements in memory take at least 10 % of the step,"""
    if m[copies.layout_copy_share] * m[gpu.gpu_computing_fraction] < m[MIN_SHARE]:
        return None
    return evidence(measure(m, copies.layout_copy_share, ">=", MIN_SHARE), note=m[copies.layout_copies].place)


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep tensors in the order that the next operator reads."""
    location = f", most of them in {found.note}" if found.note else ""
    return Advice(
        then=f"Keep tensors in the order that the next operator reads: {share(m[copies.layout_copy_share])} of the "
        f"GPU's time goes into contiguous() and reshape(), which only copy{location}.",
        changes=(python(CODE),),
        basis="20, 50 or 90 % of the time of these copies is saved.",
        effect=divide_membound(FEWER, portion=min(1.0, m[copies.layout_copy_share] / m[gpu.membound_share])),
        risk="Low: the same numbers. A view() of such a tensor may fail: use reshape() there.",
    )
