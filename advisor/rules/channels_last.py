"""cuDNN or MIOpen converts the layout of images before and after every convolution.

On tensor cores (16-bit and TF32), cuDNN's convolutions use the NHWC layout, which stores the channels of a pixel next
to each other. If the model uses the default NCHW layout, cuDNN converts every input and every output. With
`channels_last`, tensors have the right layout from the start.

Wrong when: an operation in the model supports NCHW only. The conversions then only move to that operation.

Source: PyTorch: Channels Last Memory Format, https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html
Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Threshold, gpu
from advisor.models.effects import divide_matmul, divide_membound, in_turn
from advisor.models.gpus import VOLTA
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure, python
from advisor.units import share

RULE = Rule("Keep images in channels_last", Area.KERNELS, Confidence.EMPIRICAL)

MIN_CONV = Threshold(
    0.3, "With fewer convolutions, the image layout is the bottleneck only if its conversion takes long."
)

MUCH_LAYOUT = Threshold(
    0.1, "A conversion that takes this long is worth removing, even if convolutions take little time."
)

MIN_LAYOUT = Threshold(0.05, "Below this, the layout is already right or its conversion costs little (assumption).")

# Speed-up of convolutions: none at worst, a third at best (assumption).
SPEEDUP = (1.0, 1.15, 1.35)

# Speed-up of conversions: the first input, and operations that support NCHW only, are still converted (assumption).
CONVERTING = (2.0, 5.0, 20.0)

CODE = """\
model = model.to(memory_format=torch.channels_last)
inputs = inputs.to("cuda", memory_format=torch.channels_last, non_blocking=True)  # each batch of images
"""


def when(m: Metrics) -> Evidence | None:
    """If convolutions take at least 30 % of GPU time and conversions between NCHW and NHWC at least 5 %, or conversions
    alone at least 10 %,
    """
    convolutions = measure(m, gpu.conv_share, ">=", MIN_CONV)
    conversions = measure(m, gpu.layout_share, ">=", MIN_LAYOUT if convolutions.holds else MUCH_LAYOUT)
    if conversions.value < m[MIN_LAYOUT] or m[gpu.compute_capability] < VOLTA:
        return None
    return evidence(*([convolutions] if convolutions.holds else []), conversions)


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep the model and its inputs in channels_last."""
    return Advice(
        then="Keep the model and its inputs in channels_last: converting the image layout takes "
        f"{share(m[gpu.layout_share])} of the GPU's time.",
        changes=(python(CODE),),
        basis="Convolutions become 1, 1.15 or 1.35 times as fast; 50, 80 or 95 % of the conversion time is saved.",
        effect=in_turn(
            divide_matmul(SPEEDUP, portion=min(1.0, m[gpu.conv_share] / (m[gpu.matmul_share] or 1.0))),
            divide_membound(CONVERTING, portion=min(1.0, m[gpu.layout_share] / m[gpu.membound_share])),
        ),
        memory=0,
        intervention=Intervention(name="channels_last", settings={}, safety=Safety.NUMERICS),
        risk="Low: the same numbers in another memory order. If a view() of an activation fails, use reshape().",
    )
