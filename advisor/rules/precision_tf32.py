"""fp32 matrix products run without tensor cores on a GPU that could use TF32 for them.

TF32 rounds the inputs of a product to 10 bits of mantissa and sums in fp32; on data-centre GPUs it is about eight times
as fast. PyTorch switches it on for convolutions and leaves it off for matrix products until asked.

Wrong when: the GPU is a GeForce, whose TF32 peak equals its fp32 peak, or the products must be exact to fp32, as in
solvers. bf16 autocast is faster still and saves memory: this is for programs, or parts of them, that stay in fp32.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.gpu import (
    achieved_matmul_flops,
    compute_capability,
    device,
    launch_bound_index,
    matmul_share,
    simt_fp32_gemm_share,
)
from advisor.metrics.settings import flags
from advisor.models.precision import to_tf32
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Fact, Intervention, Rule, Safety, Source, Tier
from advisor.rules.precision_bf16 import confidence, known_peaks

MIN_SHARE = Threshold(0.2, "As for bf16: below a fifth of the time there is little to win.")

LAUNCH_BOUND = Threshold(0.3, "As for bf16: a GPU that starves a third of the time gains nothing from faster kernels.")

# Ampere: the first with TF32.
CAPABILITY = (8, 0)


def when(m: Metrics) -> Evidence | None:
    """If at least a fifth of the GPU's time goes into fp32 matrix products without tensor cores on a GPU whose TF32 is
    faster, TF32 is off, and the GPU is kept supplied,
    """
    settings = m.get(flags)
    if m[compute_capability] < CAPABILITY or (settings and settings.matmul_precision in ("high", "medium")):
        return None
    share, late = m[simt_fp32_gemm_share], m[launch_bound_index]
    if share < m[MIN_SHARE] or late >= m[LAUNCH_BOUND]:
        return None
    rates = known_peaks(m[device])
    if rates.tf32 is None or rates.tf32 <= rates.fp32:
        return None
    facts = (Fact(simt_fp32_gemm_share, share, m[MIN_SHARE]), Fact(launch_bound_index, late, m[LAUNCH_BOUND], "<"))
    return Evidence(facts, note=m[device].name)


def then(m: Metrics, found: Evidence) -> Advice:
    """then allow TF32 for matrix products."""
    gpu = m[device]
    return Advice(
        then=f"Allow TF32 for the matrix products that stay in fp32: the {gpu.name} has tensor cores for it.",
        changes=spelling(m).tf32(),
        basis=f"Roofline: matrix products rise to 40, 60 or 80 % of the {gpu.name}'s TF32 peak, the rest stays.",
        effect=to_tf32(m[simt_fp32_gemm_share] / m[matmul_share], known_peaks(gpu), m.get(achieved_matmul_flops)),
        memory=0,
        intervention=Intervention(name="flags", settings={"matmul_precision": "high"}, safety=Safety.NUMERICS),
        risk="Low: inputs of products round to 10 bits of mantissa, as convolutions' already do by default.",
        confidence=confidence(m),
    )


RULE = Rule(
    title="Allow TF32 for fp32 matrix products",
    tier=Tier.PRECISION,
    when=when,
    then=then,
    confidence=Confidence.ROOFLINE,
    difficulty=1,
    sources=(
        Source(
            "PyTorch, set_float32_matmul_precision",
            "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
        ),
        Source("PyTorch, CUDA semantics: TF32 on Ampere", "https://docs.pytorch.org/docs/stable/notes/cuda.html"),
    ),
)
