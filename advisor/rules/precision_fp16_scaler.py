"""Matrix products run in fp32 on a Volta or Turing GPU, whose tensor cores know fp16 only.

fp16 products are several times as fast there, but small gradients vanish in its narrow range: the loss is scaled up
before backward and the gradients down again before the update, by a factor that follows the overflows.

Wrong when: the GPU has bf16 tensor cores (prefer those), or is older than Volta: fp16 brings it nothing. Clipping
before `unscale_` clips the wrong numbers.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.gpu import compute_capability, device
from advisor.metrics.memory import mem_activations
from advisor.metrics.settings import model
from advisor.models.precision import memory_change
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Intervention, Rule, Safety, Source, Tier
from advisor.rules.precision_bf16 import LAUNCH_BOUND, MIN_SHARE, basis, confidence, effect, slow_products

# Volta and Turing: fp16 tensor cores, no bf16.
CAPABILITIES = ((7, 0), (7, 5))


def when(m: Metrics) -> Evidence | None:
    """If at least a fifth of the GPU's time goes into fp32 matrix products on a Volta or Turing GPU, without autocast,
    and the GPU is kept supplied,
    """
    oldest, newest = CAPABILITIES
    if not oldest <= m[compute_capability] <= newest:
        return None
    return slow_products(m, MIN_SHARE, LAUNCH_BOUND)


def then(m: Metrics, found: Evidence) -> Advice:
    """then run forward and loss under fp16 autocast and scale the loss with a GradScaler."""
    fact = m.get(model)
    return Advice(
        then=f"Run the forward pass and the loss under fp16 autocast and scale the loss: the {m[device].name} has fp16 "
        "tensor cores and none for bf16.",
        changes=spelling(m).half("fp16"),
        basis=basis(m),
        effect=effect(m),
        memory=memory_change(m.get(mem_activations), fact.parameters) if fact else None,
        intervention=Intervention(name="fp16_autocast", settings={}, safety=Safety.NUMERICS),
        risk="Medium: fp16 overflows at 65504, and a step whose gradients overflowed is skipped. Compare the loss, and "
        "watch that the scale settles well above 1.",
        confidence=confidence(m),
    )


RULE = Rule(
    title="Train under fp16 autocast with a GradScaler",
    tier=Tier.PRECISION,
    when=when,
    then=then,
    confidence=Confidence.ROOFLINE,
    difficulty=1,
    sources=(
        Source("PyTorch, Automatic Mixed Precision", "https://docs.pytorch.org/docs/stable/amp.html"),
        Source("Micikevicius et al., Mixed Precision Training, ICLR 2018", "https://arxiv.org/abs/1710.03740"),
    ),
)
