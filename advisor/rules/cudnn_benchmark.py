"""cuDNN chooses its convolution algorithms by rule of thumb.

With `cudnn.benchmark` it times those it has at the first batch of every shape and keeps the fastest. Most often the
rule of thumb was right or nearly so.

Wrong when: the shapes of inputs vary (images of many sizes): each new one is timed anew, which takes longer than any
algorithm saves. Shapes are not recorded: more than some four are too many.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, Threshold
from advisor.metrics.gpu import conv_share, device, matmul_share
from advisor.metrics.settings import flags
from advisor.models.effects import divide_matmul
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Fact, Intervention, Rule, Safety, Source, Tier

MIN_CONV = Threshold(0.3, "With fewer convolutions their algorithm is not what costs.")

# Of the time of convolutions nothing, 4 or 15 % goes (assumption).
SPEEDUP = (1.0, 1 / 0.96, 1 / 0.85)


def when(m: Metrics) -> Evidence | None:
    """If three tenths of the GPU's time or more go into convolutions, cudnn.benchmark is off, and determinism was not
    asked for,
    """
    m[device]
    settings, convolutions = m[flags], m[conv_share]
    if settings.cudnn_benchmark is None:
        raise Missing("Whether cudnn.benchmark is on was not read", "Let the run go on past its first ten steps.")
    if settings.cudnn_benchmark or settings.deterministic or convolutions < m[MIN_CONV]:
        return None
    return Evidence((Fact(conv_share, convolutions, m[MIN_CONV]),), "torch.backends.cudnn.benchmark is False")


def then(m: Metrics, found: Evidence) -> Advice:
    """then let cuDNN time its algorithms."""
    return Advice(
        then="If all batches have the same shape, let cuDNN time its algorithms at the first of them.",
        changes=spelling(m).cudnn_benchmark(),
        basis="Nothing, 4 or 15 % of the convolutions' time goes.",
        effect=divide_matmul(SPEEDUP, portion=min(1.0, m[conv_share] / m[matmul_share])),
        intervention=Intervention(name="flags", settings={"cudnn_benchmark": True}, safety=Safety.NUMERICS),
        risk="Low: another algorithm rounds in another order, and may take more workspace; runs are no longer the same "
        "to the last bit.",
    )


RULE = Rule(
    title="Let cuDNN time its algorithms",
    tier=Tier.KERNELS,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=1,
    sources=(
        Source(
            "PyTorch Performance Tuning Guide: Enable cuDNN auto-tuner",
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
    ),
)
