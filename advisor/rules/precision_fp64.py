"""The program computes in fp64, which training rarely needs.

NumPy arrays are fp64 by default, and so are tensors created from them. One such tensor makes all results computed with
it fp64. fp64 moves twice the bytes of fp32. Matmuls run at half the fp32 rate on an A100 or H100, and at 1/32 or 1/64
of it on a GeForce, an A10, an L4 or a T4. On a CPU, vector instructions hold half as many fp64 numbers.

Wrong when: the computation needs fp64, as in solvers, physics, or sums over very many values.

Source: CUDA C++ Programming Guide: throughput of native arithmetic instructions, https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions
"""

from advisor.metrics import Metrics, Threshold, gpu, settings, step
from advisor.models.effects import ANYWHERE, LAUNCHED, Triple, remove_seconds, shares_of
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure, python
from advisor.units import share

RULE = Rule("Compute in fp32 instead of fp64", Area.PRECISION, Confidence.HEURISTIC, cap=Severity.SUGGEST)

MIN_SHARE = Threshold(0.05, "A smaller share cannot gain 3 %, even at twice the speed.")

MIN_PARAMETERS = Threshold(0.5, "With most parameters in fp64, forward and backward pass compute in fp64.")

# Half the bytes, and twice the numbers per instruction (assumption).
SPEEDUP_CPU: Triple = (1.1, 1.7, 2.2)

# Half the bytes at least; matmuls without fp64 units gain more (assumption).
SPEEDUP: Triple = (1.5, 2.0, 8.0)

RISK = "Medium: fp32 has 7 digits instead of 16. Compare the loss over a few hundred steps."

CODE = """\
inputs = torch.from_numpy(array).float()  # NumPy makes fp64; so does torch.tensor of NumPy numbers
# to find the line: torch.set_default_dtype stays float32; print the dtype of each batch and of the loss's inputs
assert all(tensor.dtype != torch.float64 for tensor in (inputs, targets, *model.parameters(), *model.buffers()))
"""


def when(m: Metrics) -> Evidence | None:
    """If kernels that compute in fp64 take at least 5 % of GPU time or, on a CPU, at least half of the model's
    parameters are fp64,
    """
    if m.get(settings.on_cpu):
        return evidence(measure(m, settings.fp64_parameters, ">=", MIN_PARAMETERS))
    fp64_share = measure(m, gpu.fp64_share, ">=", MIN_SHARE)
    return evidence(fp64_share, note=m[gpu.device].name) if fp64_share.holds else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then make inputs, constants and buffers fp32."""
    if m.get(settings.on_cpu):
        fp64_share, phases = m[settings.fp64_parameters], m[step.modeled_phases]
        seconds = sum(phases.get(phase, 0.0) for phase in LAUNCHED)
        return Advice(
            then=f"Make the model and its inputs fp32: {share(fp64_share)} of its parameters are fp64.",
            changes=(python(CODE),),
            basis="The forward pass, the backward pass and the update become 1.1, 1.7 or 2.2 times as fast.",
            effect=remove_seconds(*LAUNCHED, seconds=seconds, shares=shares_of(SPEEDUP_CPU)),
            risk=RISK,
        )
    fp64_share = m[gpu.fp64_share]
    seconds = fp64_share * m[gpu.gpu_computing_fraction] * sum(m[step.modeled_phases].values())
    return Advice(
        then=f"Find the tensor that is fp64 and make it fp32: {share(fp64_share)} of the GPU's time goes into fp64.",
        changes=(python(CODE),),
        basis="These kernels become 1.5, 2 or 8 times as fast.",
        effect=remove_seconds(*ANYWHERE, seconds=seconds, shares=shares_of(SPEEDUP)),
        risk=RISK,
    )
