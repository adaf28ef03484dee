"""An RMS normalization is computed operator by operator, and each operator reads and writes the whole tensor.

Written in Python, the normalization casts, squares, averages, multiplies twice and casts back. A fused kernel reads the
input and writes the result once. Many models of `transformers` have such a normalization in every layer, and torch's
own `RMSNorm` is not fused before 2.9.

Wrong when: a compiler fuses it already (then the operators are not in the trace), or the code needs a variant that no
kernel computes.

Source: PyTorch: Fused RMSNorm implementation, nine times as fast, https://github.com/pytorch/pytorch/pull/153666
Source: Hsu et al., Liger Kernel: Efficient Triton Kernels for LLM Training, https://arxiv.org/abs/2410.10989
"""

from advisor.metrics import Metrics, Threshold, gpu, normalization
from advisor.models.effects import Triple, divide_membound
from advisor.rules.base import Advice, Area, Confidence, Evidence, Measurement, Rule, python
from advisor.units import digits, share, size

RULE = Rule("Fuse the RMS normalization", Area.KERNELS, Confidence.ROOFLINE)

MIN_SHARE = Threshold(0.03, "Share of the step in forward passes: with the backward pass, saving it gains 5 % or more.")

# Total saving as multiples of the forward pass's. TRAINED: with a backward pass, which moves once to twice as many
# bytes again (assumption). ALONE: without one, most of what the bytes predict.
TRAINED: Triple = (1.0, 2.0, 3.0)
ALONE: Triple = (0.7, 0.9, 1.0)

CODE = """\
x = torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)  # one kernel from torch 2.9 on
# models of transformers: TrainingArguments(use_liger_kernel=True), or liger_kernel.transformers
# or compile the model, or the normalization alone: norm.forward = torch.compile(norm.forward)
"""


def when(m: Metrics) -> Evidence | None:
    """If RMS normalizations that are computed operator by operator take at least 3 % of the step in forward passes, and
    a fused kernel would move less than half of their bytes,
    """
    found = m[normalization.unfused_norm]
    if found is None or 2 * found.least > found.bytes:
        return None
    part = found.share * m[gpu.gpu_computing_fraction]
    if part < m[MIN_SHARE]:
        return None
    note = f"{digits(found.operators)} kernels for each of {digits(found.calls)} normalizations per step"
    return Evidence((Measurement(normalization.unfused_norm_share, found.share, m[MIN_SHARE]),), note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then compute each in one kernel."""
    those = m[normalization.unfused_norm]
    assert those is not None, "the rule has fired"
    upgrade = " Update torch to 2.9 or newer, whose RMSNorm is fused." if those.own else ""
    factors = TRAINED if those.trained else ALONE
    most = min(1.0, those.share * those.saved * factors[2] / m[gpu.membound_share])
    low, expected, high = (min(0.99, most * one / factors[2]) for one in factors)
    return Advice(
        then=f"Compute each RMS normalization in one kernel: its {digits(those.operators)} kernels move "
        f"{size(those.bytes)} per step in forward passes; a fused kernel would move {size(those.least)}. They "
        f"take {share(those.share)} of the GPU's time.{upgrade}",
        changes=(python(CODE),),
        basis="One kernel attains 70 % of the memory bandwidth. "
        + (
            "The backward pass saves nothing, as much again, or twice as much."
            if those.trained
            else "70, 90 or 100 % of the difference is saved."
        ),
        effect=divide_membound((1 / (1 - low), 1 / (1 - expected), 1 / (1 - high))),
        risk="Low: the same function, rounded in another order.",
    )
