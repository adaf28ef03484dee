from gpu_runs import GB, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import cross_entropy_share, device, gpu_busy_fraction
from advisor.metrics.matmul import Logits, head_share, logits, logits_bytes, vocabulary
from advisor.metrics.memory import mem_peak_allocated
from advisor.models.state import State

NO = Missing("Shapes were not recorded", "Record for longer.")
LLAMA = {
    cross_entropy_share: 0.10,
    head_share: 0.20,
    vocabulary: 128256,
    logits: Logits(8192, 128256),
    logits_bytes: 6.0 * 8192 * 128256,  # 6.30 GB
    gpu_busy_fraction: 1.0,
    mem_peak_allocated: 70 * GB,
}
SMALL_LOSS = {**LLAMA, cross_entropy_share: 0.04}

CASES = [
    Fires(
        "the loss over a vocabulary of 128256 takes 10 % of the step",
        gpu_metrics(LLAMA, phases={"forward": 0.3, "backward": 0.5}),
        code="LigerFusedLinearCrossEntropyLoss",
        then="8192 tokens over a vocabulary of 128256 take 5.87 GiB",
        state=State(phases={"forward": 0.03, "backward": 0.05, "other": 0.02}),
        removed=(0.03, 0.06, 0.12),
        memory=-round(0.8 * 6.304e9),
    ),
    Fires("the loss takes just over 5 % of the step", gpu_metrics({**LLAMA, cross_entropy_share: 0.051})),
    DoesNotFire(
        "the loss takes just under 5 % of the step, and little of the memory",
        gpu_metrics({**LLAMA, cross_entropy_share: 0.049}),
    ),
    DoesNotFire("10 % of GPU-busy time, but the GPU is mostly idle", gpu_metrics({**LLAMA, gpu_busy_fraction: 0.4})),
    Fires("little time, but just over 15 % of peak memory", gpu_metrics({**SMALL_LOSS, mem_peak_allocated: 42 * GB})),
    DoesNotFire(
        "little time, and just under 15 % of peak memory", gpu_metrics({**SMALL_LOSS, mem_peak_allocated: 43 * GB})
    ),
    DoesNotFire("a classifier with 9999 classes", gpu_metrics({**LLAMA, vocabulary: 9999})),
    DoesNotFire("no loss over classes", gpu_metrics({cross_entropy_share: 0.0, vocabulary: NO, logits: NO})),
    DoesNotFire("Triton does not support the GPU", gpu_metrics({**LLAMA, device: a_gpu("Tesla P40", (6, 1))})),
    NotMeasured("shapes were not recorded", gpu_metrics({**LLAMA, vocabulary: NO})),
    NotMeasured("memory was not measured", gpu_metrics({**SMALL_LOSS, mem_peak_allocated: NO})),
    NotMeasured("no kernels were recorded", gpu_metrics({**LLAMA, cross_entropy_share: NO})),
    NotMeasured("no GPU", cpu_metrics(LLAMA, phases={})),
]
