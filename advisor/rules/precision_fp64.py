"""Kernels compute in fp64, which training rarely needs.

NumPy arrays are fp64 by default, and so are tensors created from them. One such tensor makes all results computed with
it fp64. fp64 moves twice the bytes of fp32. Matmuls run at half the fp32 rate on an A100 or H100, and at 1/32 or 1/64
of it on a GeForce, an A10, an L4 or a T4.

Wrong when: the computation needs fp64, as in solvers, physics, or sums over very many values.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.gpu import device, fp64_share, gpu_computing_fraction
from advisor.metrics.step import modelled_phases
from advisor.models.effects import ANYWHERE, Triple, remove_seconds, shares_of
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Measurement, Rule, Severity, Source
from advisor.units import share

MIN_SHARE = Threshold(0.05, "A smaller share cannot gain 3 %, even at twice the speed.")

# Half the bytes at least; matmuls without fp64 units gain more (assumption).
SPEEDUP: Triple = (1.5, 2.0, 8.0)

CODE = """\
inputs = torch.from_numpy(array).float()  # NumPy makes fp64; so does torch.tensor of NumPy numbers
# to find the line: torch.set_default_dtype stays float32; print the dtype of each batch and of the loss's inputs
assert all(tensor.dtype != torch.float64 for tensor in (inputs, targets, *model.parameters(), *model.buffers()))
"""


def when(m: Metrics) -> Evidence | None:
    """If kernels that compute in fp64 take at least 5 % of GPU time,"""
    part = m[fp64_share]
    return Evidence((Measurement(fp64_share, part, m[MIN_SHARE]),), m[device].name) if part >= m[MIN_SHARE] else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then make inputs, constants and buffers fp32."""
    part = m[fp64_share]
    seconds = part * m[gpu_computing_fraction] * sum(m[modelled_phases].values())
    return Advice(
        then=f"Find the tensor that is fp64 and make it fp32: {share(part)} of the GPU's time goes into fp64.",
        changes=(Change(language="python", code=CODE),),
        basis="These kernels become 1.5, 2 or 8 times as fast.",
        effect=remove_seconds(*ANYWHERE, seconds=seconds, shares=shares_of(SPEEDUP)),
        risk="Medium: fp32 has 7 digits instead of 16. Compare the loss over a few hundred steps.",
    )


RULE = Rule(
    title="Compute in fp32 instead of fp64",
    area=Area.PRECISION,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=1,
    sources=(
        Source(
            "CUDA C++ Programming Guide: throughput of native arithmetic instructions",
            "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions",
        ),
    ),
    cap=Severity.SUGGEST,
)
