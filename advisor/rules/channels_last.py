"""cuDNN converts the layout of images before and after every convolution.

Its 16-bit convolutions on tensor cores work on NHWC, the channels of a pixel side by side. A model in the default NCHW
layout has each input converted and each output converted back; in `channels_last` the tensors lie right from the start.

Wrong when: the model is a transformer or computes in fp32; or an operation in it knows NCHW only, and the conversions
just move there.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.gpu import compute_capability, conv_share, half_conv_share, layout_share, matmul_share
from advisor.models.effects import divide_matmul
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Intervention, Rule, Safety, Source, Tier
from advisor.units import share

MIN_CONV = Threshold(0.3, "With fewer convolutions the layout of images is not what costs.")

MIN_LAYOUT = Threshold(0.05, "Converting takes so much of the GPU's time, or the layout is right already (assumption).")

MIN_HALF = Threshold(0.5, "Half of the convolutions are of 16 bits: in fp32 NHWC brings nothing.")

# Volta: the first with tensor cores.
CAPABILITY = (7, 0)

# Convolutions are divided by this: nothing at worst, a third at best (assumption).
SPEEDUP = (1.0, 1.15, 1.35)

CODE = """\
model = model.to(memory_format=torch.channels_last)
inputs = inputs.to("cuda", memory_format=torch.channels_last, non_blocking=True)  # each batch of images
"""


def when(m: Metrics) -> Evidence | None:
    """If three tenths of the GPU's time or more go into convolutions, most of them of 16 bits, and a twentieth into
    converting between NCHW and NHWC,
    """
    convolutions, converting = m[conv_share], m[layout_share]
    if convolutions < m[MIN_CONV] or converting < m[MIN_LAYOUT] or m[compute_capability] < CAPABILITY:
        return None
    if m[half_conv_share] < m[MIN_HALF] * convolutions:
        return None
    return Evidence((Fact(conv_share, convolutions, m[MIN_CONV]), Fact(layout_share, converting, m[MIN_LAYOUT])))


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep model and inputs in channels_last."""
    return Advice(
        then=f"Keep the model and its inputs in channels_last: {share(m[layout_share])} of the GPU's time goes into "
        "converting the layout of images.",
        changes=(Change(language="python", code=CODE),),
        basis="Convolutions become 1, 1.15 or 1.35 times as fast.",
        effect=divide_matmul(SPEEDUP, portion=min(1.0, m[conv_share] / m[matmul_share])),
        memory=0,
        intervention=Intervention(name="channels_last", settings={}, safety=Safety.NUMERICS),
        risk="Low: the same numbers in another order; a view() of an activation may have to become a reshape().",
    )


RULE = Rule(
    title="Keep images in channels_last",
    tier=Tier.KERNELS,
    when=when,
    then=then,
    confidence=Confidence.EMPIRICAL,
    difficulty=1,
    sources=(
        Source(
            "PyTorch: Channels Last Memory Format",
            "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
        ),
        Source(
            "PyTorch Performance Tuning Guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        ),
    ),
)
