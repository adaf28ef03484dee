"""Matmuls run in fp32 or TF32 on a GPU with bf16 tensor cores.

bf16 has the range of fp32, so it needs no loss scaling. bf16 tensor cores do several times as many operations per
second. Memory-bound kernels gain too, because they move half the bytes. Autocast keeps sensitive operations in fp32.

Wrong when: data loading or kernel launches are the limit (the GPU would only be idle for longer), or the loss depends
on small differences between large numbers. `torch.cuda.is_bf16_supported()` also returns True for slow emulation on
older GPUs.

Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
Source: Micikevicius et al., Mixed Precision Training, ICLR 2018, https://arxiv.org/abs/1710.03740
Source: Bekman, Machine Learning Engineering, https://github.com/stas00/ml-engineering
"""

from typing import Literal

from advisor.metrics import Metrics, Threshold, gpu, memory, peaks, settings
from advisor.models.gpus import AMPERE
from advisor.models.precision import attained_half, memory_change, to_half
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure

RULE = Rule("Train under bf16 autocast", Area.PRECISION, Confidence.ROOFLINE, supersedes=("precision-tf32",))

MIN_SHARE = Threshold(0.2, "Below a fifth, even infinitely fast matmuls save less than the casts may cost.")

LAUNCH_BOUND = Threshold(
    0.3,
    "The GPU then waits for launches for about a third of the time; faster kernels would mostly make the gaps longer.",
)


def when(m: Metrics) -> Evidence | None:
    """If fp32 or TF32 matmuls take at least 20 % of GPU time on a GPU with bf16 tensor cores, autocast is off, and
    the GPU waits for launches for less than 30 % of the time,
    """
    if m[gpu.compute_capability] < AMPERE:
        return None
    return slow_products(m, MIN_SHARE, LAUNCH_BOUND)


def then(m: Metrics, found: Evidence) -> Advice:
    """then run forward and loss under bf16 autocast, without a GradScaler."""
    return in_half(
        m,
        "bf16",
        f"Run the forward pass and the loss under bf16 autocast: the {m[gpu.device].name} has tensor cores for it. "
        "Leave backward outside, and add no GradScaler.",
        Intervention(name="autocast", settings={"dtype": "bfloat16"}, safety=Safety.NUMERICS),
        risk="Low: matmuls round to 8 bits of mantissa. Compare the loss over a few hundred steps.",
    )


def slow_products(m: Metrics, least: Threshold, late: Threshold) -> Evidence | None:
    """Return the evidence that a 16-bit format would help; None if there is none.

    The evidence is fp32 or TF32 matmuls that keep the GPU busy.
    """
    flags = m.get(settings.flags)
    if flags and flags.autocast:
        return None
    reason = evidence(
        measure(m, gpu.fp32_matmul_share, ">=", least),
        measure(m, gpu.launch_bound_index, "<", late),
        note=m[gpu.device].name,
    )
    if reason:
        m[peaks.peak_rates]  # without them nothing can be predicted
    return reason


def in_half(m: Metrics, dtype: Literal["bf16", "fp16"], then: str, intervention: Intervention, *, risk: str) -> Advice:
    """Return the advice to train under autocast in a 16-bit format; both formats gain the same."""
    peak_rates, rate, model = m[peaks.peak_rates], m.get(gpu.achieved_matmul_flops), m.get(settings.model)
    matmul_share, simt_share = m[gpu.matmul_share], m[gpu.simt_fp32_matmul_share]
    tf32_share = max(0.0, m[gpu.fp32_matmul_share] - simt_share)
    low, expected, high = (f"{100 * share:.0f}" for share in attained_half(peak_rates))
    present_rate = (
        "a typical share of its peak (shapes were not recorded)" if rate is None else f"{rate / 1e12:.3g} TFLOP/s"
    )
    return Advice(
        then=then,
        changes=spelling(m).half(dtype),
        basis=f"Roofline: matmuls rise from {present_rate} to {low}, {expected} or {high} % of {peak_of(m)} 16-bit "
        "peak, limited by memory bandwidth and kernel launches. Memory-bound kernels become 1, 1.4 or 1.8 times as "
        "fast; the rest stays the same.",
        effect=to_half(
            simt_share / matmul_share, tf32_share / matmul_share, peak_rates, rate, m.get(peaks.matmul_calls) or ()
        ),
        memory=memory_change(m.get(memory.mem_activations), model.parameters) if model else None,
        intervention=intervention,
        risk=risk,
        confidence=confidence(m),
    )


def confidence(m: Metrics) -> Confidence:
    """Return the confidence in the roofline model.

    It is one class lower if the present rate of the matmuls is assumed, or the GPU's peak is derived.
    """
    is_assumed = m.get(gpu.achieved_matmul_flops) is None or m[peaks.peak_rates].derived
    return Confidence.EMPIRICAL if is_assumed else Confidence.ROOFLINE


def peak_of(m: Metrics) -> str:
    """Return the name of the GPU, and a note if its peak does not come from a data sheet."""
    name = f"the {m[gpu.device].name}'s"
    return f"{name} (derived from its generation, multiprocessors and clock)" if m[peaks.peak_rates].derived else name
