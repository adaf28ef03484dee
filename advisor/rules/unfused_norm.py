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

# Total saving as multiples of the forward pass's. TRAINED: with a backward pass, which moves up to twice as many
# bytes in addition (assumption). ALONE: without one, most of what the bytes predict.
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
    norm = m[normalization.unfused_norm]
    if norm is None or 2 * norm.least > norm.bytes:
        return None
    step_share = norm.share * m[gpu.gpu_computing_fraction]
    if step_share < m[MIN_SHARE]:
        return None
    note = f"{digits(norm.operators)} kernels for each of {digits(norm.calls)} normalizations per step"
    return Evidence((Measurement(normalization.unfused_norm_share, norm.share, m[MIN_SHARE]),), note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then compute each in one kernel."""
    norm = m[normalization.unfused_norm]
    assert norm is not None, "the rule has fired"
    upgrade_note = " Update torch to 2.9 or newer, whose RMSNorm is fused." if norm.own else ""
    factors = TRAINED if norm.trained else ALONE
    highest_share = min(1.0, norm.share * norm.saved * factors[2] / m[gpu.membound_share])
    low, expected, high = (min(0.99, highest_share * factor / factors[2]) for factor in factors)
    return Advice(
        then=f"Compute each RMS normalization in one kernel: its {digits(norm.operators)} kernels move "
        f"{size(norm.bytes)} per step in forward passes; a fused kernel would move {size(norm.least)}. They "
        f"take {share(norm.share)} of the GPU's time.{upgrade_note}",
        changes=(python(CODE),),
        basis="One kernel attains 70 % of the memory bandwidth. "
        + (
            "The backward pass saves nothing, as much again, or twice as much."
            if norm.trained
            else "70, 90 or 100 % of the difference is saved."
        ),
        effect=divide_membound((1 / (1 - low), 1 / (1 - expected), 1 / (1 - high))),
        risk="Low: the same function, rounded in another order.",
    )
