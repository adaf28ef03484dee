"""cuDNN chooses its convolution algorithms by a heuristic.

With `cudnn.benchmark`, cuDNN times its algorithms on the first batch of each shape and keeps the fastest. In most cases
the heuristic's choice was already the best or close to it.

Wrong when: input shapes vary (images of many sizes). Each new shape is timed again, which takes longer than the faster
algorithm saves. Shapes are not recorded; more than about four are too many.

Source: PyTorch Performance Tuning Guide: Enable cuDNN auto-tuner, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Missing, Threshold, gpu, settings
from advisor.models.effects import divide_matmul
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure

RULE = Rule("Let cuDNN time its algorithms", Area.KERNELS, Confidence.HEURISTIC)

MIN_CONV = Threshold(0.3, "With fewer convolutions, their algorithm is not the bottleneck.")

# Speed-up that saves 0, 4 or 15 % of the time of convolutions (assumption).
SPEEDUP = (1.0, 1 / 0.96, 1 / 0.85)


def when(m: Metrics) -> Evidence | None:
    """If convolutions take at least 30 % of GPU time, cudnn.benchmark is off, and determinism is not requested,"""
    m[gpu.device]
    flags, convolutions = m[settings.flags], measure(m, gpu.conv_share, ">=", MIN_CONV)
    if flags.cudnn_benchmark is None:
        raise Missing("The value of cudnn.benchmark was not read", "Let the run continue past its first ten steps.")
    if flags.cudnn_benchmark or flags.deterministic:
        return None
    return evidence(convolutions, note="torch.backends.cudnn.benchmark is False")


def then(m: Metrics, found: Evidence) -> Advice:
    """then let cuDNN time its algorithms."""
    return Advice(
        then="If all batches have the same shape, let cuDNN time its algorithms on the first batch.",
        changes=spelling(m).cudnn_benchmark(),
        basis="The convolutions take 0, 4 or 15 % less time.",
        effect=divide_matmul(SPEEDUP, portion=min(1.0, m[gpu.conv_share] / m[gpu.matmul_share])),
        intervention=Intervention(name="flags", settings={"cudnn_benchmark": True}, safety=Safety.NUMERICS),
        risk="Low: another algorithm rounds in another order and may need more workspace; runs are no longer "
        "bitwise identical.",
    )
