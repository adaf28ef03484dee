"""Large matmuls run in bf16 on a GPU that computes fp8 twice as fast.

From compute capability 8.9 on, tensor cores support 8-bit floats. With one scale per row, models with large matmuls
trained at 1.34 to 1.5 times the speed on clusters. For small matmuls, the conversion costs as much as fp8 saves.

Wrong when: the matrices have a dimension below about 2048, the model is not compiled, or you have not compared the loss
over a long run (fp8 has only 3 bits of mantissa). Matrix sizes are not recorded; the rule takes long kernels as a sign
of large matrices.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.gpu import bf16_gemm_share, bf16_gemm_us, compute_capability, device, gpu_computing_fraction
from advisor.metrics.peaks import peak_rates
from advisor.metrics.settings import flags
from advisor.models.effects import divide_step
from advisor.models.precision import FP8_STEP
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Measurement, Rule, Severity, Source

# Ada and Hopper: the first with fp8 tensor cores.
CAPABILITY = (8, 9)

MIN_SHARE = Threshold(
    0.5, "Share of the step in matmuls; with a smaller share, the conversion costs more than it saves."
)

MIN_DIMENSION = Threshold(
    2048,
    "In smaller matmuls, the conversion costs as much as the faster tensor cores save (torchao advises "
    "excluding them).",
)

CODE = """\
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

config = Float8LinearConfig.from_recipe_name("rowwise")
large = lambda module, name: min(module.weight.shape) >= 2048 and "head" not in name
convert_to_float8_training(model, config=config, module_filter_fn=large)
model = torch.compile(model)
"""


def when(m: Metrics) -> Evidence | None:
    """If a compiled model runs on a GPU with fp8 tensor cores, its bf16 matmuls take at least 50 % of the step, and on
    average they take at least as long as a matmul of size 2048 x 2048 x 2048 at peak rate,
    """
    gpu = m[device]
    if m[compute_capability] < CAPABILITY or not m[flags].compile:
        return None
    peaks = m[peak_rates]
    if peaks.fp8 is None:
        return None
    products = m[bf16_gemm_share]
    # With every dimension so long: a multiplication and an addition for each term of the product.
    least = 1e6 * 2 * m[MIN_DIMENSION] ** 3 / peaks.half
    if products * m[gpu_computing_fraction] < m[MIN_SHARE] or m[bf16_gemm_us] < least:
        return None
    return Evidence(
        (Measurement(bf16_gemm_share, products, m[MIN_SHARE]), Measurement(bf16_gemm_us, m[bf16_gemm_us], least)),
        gpu.name,
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then try fp8 with one scale per row in the large layers."""
    return Advice(
        then="If you may change the numerics, try fp8 with one scale per row in the large linear layers: the "
        f"{found.note} multiplies it twice as fast as bf16.",
        changes=(Change(language="python", code=CODE),),
        basis="The whole step becomes 1, 1.2 or 1.4 times as fast, as reported for clusters; the sizes of the "
        "matmuls were not recorded.",
        effect=divide_step(FP8_STEP),
        risk="High: 3 bits of mantissa. Compare loss and quality over a long run before you rely on it.",
    )


RULE = Rule(
    title="Try fp8 in large linear layers",
    area=Area.PRECISION,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=3,
    sources=(Source("torchao: pre-training with float8", "https://docs.pytorch.org/ao/stable/pretraining.html"),),
    cap=Severity.INFO,
)
