"""Matmuls run in fp32 on a Volta or Turing GPU, whose tensor cores support only fp16.

fp16 matmuls are several times as fast on these GPUs, but small gradients become zero in fp16's narrow range. A
GradScaler therefore scales the loss up before the backward pass and the gradients down before the update, by a factor
that adapts to overflows.

Wrong when: the GPU has bf16 tensor cores (prefer those), or is older than Volta, where fp16 gains nothing. If you clip
gradients, call `unscale_` first; otherwise you clip scaled numbers.

Source: PyTorch, Automatic Mixed Precision, https://docs.pytorch.org/docs/stable/amp.html
Source: Micikevicius et al., Mixed Precision Training, ICLR 2018, https://arxiv.org/abs/1710.03740
"""

from advisor.metrics import Metrics, gpu
from advisor.models.gpus import TURING, VOLTA
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety
from advisor.rules.precision_bf16 import LAUNCH_BOUND, MIN_SHARE, in_half, slow_products

RULE = Rule("Train under fp16 autocast with a GradScaler", Area.PRECISION, Confidence.ROOFLINE)


def when(m: Metrics) -> Evidence | None:
    """If fp32 matmuls take at least 20 % of GPU time on a Volta or Turing GPU, autocast is off, and the GPU waits
    for launches for less than 30 % of the time,
    """
    if not VOLTA <= m[gpu.compute_capability] <= TURING:
        return None
    return slow_products(m, MIN_SHARE, LAUNCH_BOUND)


def then(m: Metrics, found: Evidence) -> Advice:
    """then run forward and loss under fp16 autocast and scale the loss with a GradScaler."""
    return in_half(
        m,
        "fp16",
        f"Run the forward pass and the loss under fp16 autocast and scale the loss: the {m[gpu.device].name} has "
        "tensor cores for fp16 but not for bf16.",
        Intervention(name="fp16_autocast", settings={}, safety=Safety.NUMERICS),
        risk="Medium: fp16 overflows at 65504, and a step whose gradients overflow is skipped. Compare the loss, "
        "and check that the scale settles well above 1.",
    )
