"""Matrix products run in fp32 or TF32 on a GPU with bf16 tensor cores.

bf16 has the range of fp32, so it needs no loss scaling, and its tensor cores do several times as many products a
second; memory-bound kernels gain too, for they move half the bytes. Autocast keeps the sensitive operations in fp32.

Wrong when: the loader or the launching of kernels is the limit (the GPU only idles more), or the loss depends on small
differences of large numbers. `torch.cuda.is_bf16_supported()` also says yes to slow emulation on older GPUs.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, Threshold
from advisor.metrics.gpu import (
    Device,
    achieved_matmul_flops,
    compute_capability,
    device,
    fp32_matmul_share,
    launch_bound_index,
    matmul_share,
    simt_fp32_matmul_share,
)
from advisor.metrics.memory import mem_activations
from advisor.metrics.settings import flags, model
from advisor.models.gpus import Peaks, peaks
from advisor.models.precision import memory_change, to_half
from advisor.models.state import Effect
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Fact, Intervention, Rule, Safety, Source, Tier

MIN_SHARE = Threshold(0.2, "Below a fifth even infinitely fast products remove less than casting may cost elsewhere.")

LAUNCH_BOUND = Threshold(
    0.3, "At that level the GPU starves a third of the time: faster kernels mostly lengthen the gaps."
)

# Ampere: the first with bf16 tensor cores.
CAPABILITY = (8, 0)


def when(m: Metrics) -> Evidence | None:
    """If at least a fifth of the GPU's time goes into fp32 or TF32 matrix products on a GPU with bf16 tensor cores,
    without autocast, and the GPU is kept supplied,
    """
    if m[compute_capability] < CAPABILITY:
        return None
    return slow_products(m, MIN_SHARE, LAUNCH_BOUND)


def then(m: Metrics, found: Evidence) -> Advice:
    """then run forward and loss under bf16 autocast, without a GradScaler."""
    gpu = m[device]
    fact = m.get(model)
    return Advice(
        then=f"Run the forward pass and the loss under bf16 autocast: the {gpu.name} has tensor cores for it. "
        "Leave backward outside, and add no GradScaler.",
        changes=spelling(m).half("bf16"),
        basis=basis(m),
        effect=effect(m),
        memory=memory_change(m.get(mem_activations), fact.parameters) if fact else None,
        intervention=Intervention(name="autocast", settings={"dtype": "bfloat16"}, safety=Safety.NUMERICS),
        risk="Low: products round to 8 bits of mantissa. Compare the loss over some hundred steps.",
        confidence=confidence(m),
    )


def slow_products(m: Metrics, least: Threshold, late: Threshold) -> Evidence | None:
    """What any 16-bit format would cure: products of 32 bits that the GPU is busy with."""
    settings = m.get(flags)
    if settings and settings.autocast:
        return None
    share, waiting = m[fp32_matmul_share], m[launch_bound_index]
    if share < m[least] or waiting >= m[late]:
        return None
    known_peaks(m[device])
    facts = (Fact(fp32_matmul_share, share, m[least]), Fact(launch_bound_index, waiting, m[late], "<"))
    return Evidence(facts, note=m[device].name)


def known_peaks(gpu: Device) -> Peaks:
    """Its peak rates; Missing if they are not in the table, for then there is no prediction."""
    known = peaks(gpu.name)
    if known is None:
        raise Missing(
            f"The peak rates of {gpu.name} are not in the table of GPUs",
            "Add the dense rates of its data sheet to advisor/models/gpus.py.",
        )
    return known


def effect(m: Metrics) -> Effect:
    """Of 16-bit autocast."""
    total, simt = m[matmul_share], m[simt_fp32_matmul_share]
    tf32 = max(0.0, m[fp32_matmul_share] - simt)
    return to_half(simt / total, tf32 / total, known_peaks(m[device]), m.get(achieved_matmul_flops))


def confidence(m: Metrics) -> Confidence:
    """A class lower where the present rate of the products is assumed."""
    return Confidence.EMPIRICAL if m.get(achieved_matmul_flops) is None else Confidence.ROOFLINE


def basis(m: Metrics) -> str:
    """How the gain was predicted."""
    now = m.get(achieved_matmul_flops)
    rate = "a typical share of its peak (shapes were not recorded)" if now is None else f"{now / 1e12:.3g} TFLOP/s"
    return (
        f"Roofline: matrix products go from {rate} to 30, 55 or 75 % of the {m[device].name}'s 16-bit peak, "
        "memory-bound kernels speed up by 1, 1.4 or 1.8, the rest stays."
    )


RULE = Rule(
    title="Train under bf16 autocast",
    tier=Tier.PRECISION,
    when=when,
    then=then,
    confidence=Confidence.ROOFLINE,
    difficulty=1,
    sources=(
        Source(
            "PyTorch Performance Tuning Guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        ),
        Source("Micikevicius et al., Mixed Precision Training, ICLR 2018", "https://arxiv.org/abs/1710.03740"),
        Source("Bekman, Machine Learning Engineering", "https://github.com/stas00/ml-engineering"),
    ),
    supersedes=("precision-tf32",),
)
