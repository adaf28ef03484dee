from dataclasses import replace

from gpu_runs import FLAGS, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import bf16_gemm_share, bf16_gemm_us, device, gpu_busy_fraction
from advisor.metrics.settings import flags
from advisor.models.state import State

H100 = a_gpu("NVIDIA H100 80GB HBM3", (9, 0))
# 2 x 2048^3 operations take 17.4 us at 989 TFLOP/s
LARGE = {device: H100, bf16_gemm_share: 0.7, bf16_gemm_us: 200.0, gpu_busy_fraction: 1.0}

CASES = [
    Fires(
        "large products on an H100",
        gpu_metrics(LARGE),
        code="rowwise",
        note="H100",
        state=State(phases={"h2d": 0.01, "forward": 0.03, "backward": 0.06}),
        removed=(0.0, 0.15, 0.257),
    ),
    Fires("just above half", gpu_metrics({**LARGE, bf16_gemm_share: 0.501})),
    DoesNotFire("just below half", gpu_metrics({**LARGE, bf16_gemm_share: 0.499})),
    DoesNotFire("half of what the GPU does, but it idles", gpu_metrics({**LARGE, gpu_busy_fraction: 0.7})),
    Fires("just long enough", gpu_metrics({**LARGE, bf16_gemm_us: 17.5})),
    DoesNotFire("just too short", gpu_metrics({**LARGE, bf16_gemm_us: 17.3})),
    DoesNotFire("not compiled", gpu_metrics({**LARGE, flags: replace(FLAGS, compile=False)})),
    DoesNotFire("an A100 has no fp8", gpu_metrics({**LARGE, device: a_gpu()})),
    NotMeasured("a GPU whose peak rates are unknown", gpu_metrics({**LARGE, device: a_gpu("NVIDIA Next", (13, 0))})),
    NotMeasured(
        "no kernels were recorded", gpu_metrics({**LARGE, bf16_gemm_share: Missing("No kernels", "Record some.")})
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
