from gpu_runs import a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device, gpu_busy_fraction, matmul_share
from advisor.metrics.matmul import large_bf16_matmuls, large_bf16_share
from advisor.metrics.operators import Product
from advisor.models.state import State

H100 = a_gpu("NVIDIA H100 80GB HBM3", (9, 0))
# At 700 of 989 TFLOP/s. In fp8, 1979 at most; converting moves 3 bytes of 2 x 8192^2 numbers at 0.8 x 3.35 TB/s.
FLOP = 2 * 8192**3
SECONDS = FLOP / 700e12
CONVERTING = 3 * 2 * 8192**2 / (0.8 * 3.35e12)
LARGE = {
    device: H100,
    gpu_busy_fraction: 1.0,
    matmul_share: 0.7,
    large_bf16_share: 0.7,
    large_bf16_matmuls: (
        Product(batch=1, rows=8192, columns=8192, inner=8192, dtype="bf16", calls=10, seconds=10 * SECONDS),
    ),
}


def removed(attained):
    return 0.7 * (1 - (FLOP / (attained * 1979e12) + CONVERTING) / SECONDS)


CASES = [
    Fires(
        "large matmuls on an H100",
        gpu_metrics(LARGE),
        code="rowwise",
        note="H100",
        state=State(phases={"forward": 0.03, "backward": 0.07}, matmul=0.07),
        removed=(removed(0.45), removed(0.6), removed(0.7)),
    ),
    Fires(
        "block scaling on a B200",
        gpu_metrics({**LARGE, device: a_gpu("NVIDIA B200", (10, 0))}),
        code="MXFP8BlockScaling",
    ),
    Fires("just above the limit", gpu_metrics({**LARGE, large_bf16_share: 0.301})),
    DoesNotFire("just below the limit", gpu_metrics({**LARGE, large_bf16_share: 0.299})),
    DoesNotFire("70 % of GPU-busy time, but the GPU is mostly idle", gpu_metrics({**LARGE, gpu_busy_fraction: 0.4})),
    DoesNotFire("an A100 has no fp8", gpu_metrics({**LARGE, device: a_gpu()})),
    NotMeasured("a GPU whose peak rates are unknown", gpu_metrics({**LARGE, device: a_gpu("NVIDIA Next", (13, 0))})),
    NotMeasured(
        "shapes were not recorded", gpu_metrics({**LARGE, large_bf16_share: Missing("No shapes", "Record some.")})
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
