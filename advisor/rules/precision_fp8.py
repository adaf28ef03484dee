"""Large matmuls run in bf16 on a GPU that computes fp8 twice as fast.

From compute capability 8.9 on, tensor cores support 8-bit floats. With one scale per row, models with large matmuls
trained at 1.34 to 1.5 times the speed on clusters. Blackwell has scales for each 32 numbers in hardware (MXFP8), and
4-bit floats (NVFP4). For small matmuls, the conversion costs as much as fp8 saves.

Wrong when: you have not compared the loss over a long run (fp8 has only 3 bits of mantissa), or the model is not
compiled: the conversions then run as separate kernels.

Source: torchao: pre-training with float8, https://docs.pytorch.org/ao/stable/pretraining.html
Source: NVIDIA Transformer Engine: recipes, https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/api/common.html
"""

from advisor.metrics import Metrics, Threshold, gpu, matmul, peaks
from advisor.models.effects import divide_matmul
from advisor.models.gpus import ADA
from advisor.models.precision import fp8_speedup
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure, python
from advisor.units import share

RULE = Rule("Try fp8 in large linear layers", Area.PRECISION, Confidence.ROOFLINE, difficulty=3, cap=Severity.INFO)

# Major compute capability of data-center Blackwell, the first with scales in hardware.
BLACKWELL = 10

MIN_SHARE = Threshold(0.3, "Share of the step: less gains some 10 % at best, too little for the risk (assumption).")

ROWWISE = """\
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

config = Float8LinearConfig.from_recipe_name("rowwise")
large = lambda module, name: min(module.weight.shape) >= 2048 and "head" not in name
convert_to_float8_training(model, config=config, module_filter_fn=large)
model = torch.compile(model)  # fuses the conversions
"""

BLOCKWISE = """\
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import MXFP8BlockScaling

# in the model: te.Linear or te.LayerNormLinear for the large layers; the head stays in bf16
with te.fp8_autocast(enabled=True, fp8_recipe=MXFP8BlockScaling()):
    loss = criterion(model(inputs), targets)
# NVFP4BlockScaling() doubles the rate again, with 1 bit of mantissa: a much higher risk
"""


def when(m: Metrics) -> Evidence | None:
    """If the GPU has fp8 tensor cores, and bf16 matmuls in which every dimension is at least 2048 take at least 30 % of
    the step,
    """
    if m[gpu.compute_capability] < ADA or m[peaks.peak_rates].fp8 is None or m[peaks.peak_rates].bandwidth is None:
        return None
    if m[matmul.large_bf16_share] * m[gpu.gpu_computing_fraction] < m[MIN_SHARE]:
        return None
    return evidence(measure(m, matmul.large_bf16_share, ">=", MIN_SHARE), note=m[gpu.device].name)


def then(m: Metrics, found: Evidence) -> Advice:
    """then try fp8 in the large layers: with one scale per row, or per block on Blackwell."""
    blockwise = m[gpu.compute_capability][0] == BLACKWELL and not m[gpu.device].is_amd
    peak_rates, matmul_share = m[peaks.peak_rates], m[matmul.large_bf16_share]
    products = [
        (
            product.seconds,
            product.calls * product.flop,
            product.calls * product.inner * (product.rows + product.columns),
        )
        for product in m[matmul.large_bf16_matmuls]
    ]
    assert peak_rates.fp8 is not None, "the rule has fired"
    assert peak_rates.bandwidth is not None, "the rule has fired"
    return Advice(
        then=f"If you may change the numerics, try {'MXFP8' if blockwise else 'fp8 with one scale per row'} in the "
        f"large linear layers: they take {share(matmul_share)} of the time of the {found.note}, which multiplies fp8 "
        "twice as fast as bf16.",
        changes=(python(BLOCKWISE if blockwise else ROWWISE),),
        basis="Each of these matmuls attains 45, 60 or 70 % of the fp8 peak, and its inputs are converted in one pass "
        "over memory; those that would be no faster stay in bf16.",
        effect=divide_matmul(
            fp8_speedup(products, peak_rates.fp8, peak_rates.bandwidth),
            portion=min(1.0, matmul_share / m[gpu.matmul_share]),
        ),
        risk="High: 3 bits of mantissa. Compare loss and quality over a long run before you rely on it.",
    )
