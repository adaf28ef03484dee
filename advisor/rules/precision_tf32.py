"""fp32 matmuls run without tensor cores on a GPU that supports TF32.

TF32 rounds the inputs of a matmul to 10 bits of mantissa and sums in fp32. On data-center GPUs it is about eight times
as fast as fp32. On a GeForce both have the same peak; TF32 reaches nearly all of it, fp32 about two thirds. PyTorch
enables TF32 for convolutions and leaves it off for matmuls by default.

Wrong when: the matmuls must be exact to fp32, as in solvers. bf16 autocast is even faster and saves memory; this rule
is for programs, or parts of them, that stay in fp32.

Source: PyTorch, set_float32_matmul_precision, https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html
Source: PyTorch, CUDA semantics: TF32 on Ampere, https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from advisor.metrics import Metrics, Threshold, gpu, peaks, settings
from advisor.models.gpus import AMPERE
from advisor.models.precision import attained_tf32, to_tf32
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure
from advisor.rules.precision_bf16 import confidence, peak_of

RULE = Rule("Allow TF32 for fp32 matmuls", Area.PRECISION, Confidence.ROOFLINE)

MIN_SHARE = Threshold(0.2, "As for bf16: below a fifth of the time there is little to gain.")

LAUNCH_BOUND = Threshold(
    0.3, "As for bf16: a GPU that waits for launches for a third of the time gains nothing from faster kernels."
)


def when(m: Metrics) -> Evidence | None:
    """If fp32 matmuls without tensor cores take at least 20 % of GPU time on a GPU that supports TF32, TF32 is off,
    and the GPU waits for launches for less than 30 % of the time,
    """
    flags = m.get(settings.flags)
    if m[gpu.compute_capability] < AMPERE or (flags and flags.matmul_precision in ("high", "medium")):
        return None
    reason = evidence(
        measure(m, gpu.simt_fp32_gemm_share, ">=", MIN_SHARE),
        measure(m, gpu.launch_bound_index, "<", LAUNCH_BOUND),
        note=m[gpu.device].name,
    )
    return reason if reason and m[peaks.peak_rates].tf32 is not None else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then allow TF32 for matmuls."""
    device, rate = m[gpu.device], m.get(gpu.achieved_matmul_flops)
    low, expected, high = (f"{100 * share:.0f}" for share in attained_tf32(m[peaks.peak_rates]))
    return Advice(
        then=f"Allow TF32 for the matmuls that stay in fp32: the {device.name} has tensor cores for it.",
        changes=spelling(m).tf32(),
        basis=f"Roofline: matmuls rise to {low}, {expected} or {high} % of {peak_of(m)} TF32 peak, limited by memory "
        "bandwidth and kernel launches; the rest stays the same.",
        effect=to_tf32(
            m[gpu.simt_fp32_gemm_share] / m[gpu.matmul_share],
            m[peaks.peak_rates],
            rate,
            m.get(peaks.matmul_calls) or (),
        ),
        memory=0,
        intervention=Intervention(name="flags", settings={"matmul_precision": "high"}, safety=Safety.NUMERICS),
        risk="Low: inputs of matmuls round to 10 bits of mantissa, as those of convolutions already do by default.",
        confidence=confidence(m),
    )
