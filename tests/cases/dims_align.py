from gpu_runs import a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device, matmul_share
from advisor.metrics.matmul import misaligned_efficiency, misaligned_length, misaligned_matmul_share
from advisor.models.state import State

ODD = {
    misaligned_length: 50257,
    misaligned_matmul_share: 0.35,
    misaligned_efficiency: 0.4,
    matmul_share: 0.7,
}

CASES = [
    Fires(
        "a vocabulary of 50257",
        gpu_metrics(ODD),
        code=("torch.nn.Linear(hidden, 50304", "[..., :50257]"),
        then="35% of the GPU's time at 40% of the speed",
        state=State(phases={"forward": 0.03, "backward": 0.07}, matmul=0.07),
        removed=(0.35 * (1 - 1 / 1.1), 0.35 * (1 - 1 / 1.3), 0.35 / 2),
    ),
    Fires(
        "a short length is padded to a smaller multiple",
        gpu_metrics({**ODD, misaligned_length: 100}),
        code="pad_to_multiple_of=8",
        then="Pad the length 100 to 104",
    ),
    Fires("misaligned matmuls take just over 10 % of GPU time", gpu_metrics({**ODD, misaligned_matmul_share: 0.101})),
    DoesNotFire(
        "misaligned matmuls take just under 10 % of GPU time", gpu_metrics({**ODD, misaligned_matmul_share: 0.099})
    ),
    Fires("efficiency just below the limit", gpu_metrics({**ODD, misaligned_efficiency: 0.499})),
    DoesNotFire("efficiency just above the limit", gpu_metrics({**ODD, misaligned_efficiency: 0.501})),
    DoesNotFire("no tensor cores", gpu_metrics({**ODD, device: a_gpu("Tesla P40", (6, 1))})),
    NotMeasured("no comparable matmuls", gpu_metrics({**ODD, misaligned_efficiency: Missing("No peers", "Time it.")})),
    NotMeasured(
        "shapes were not recorded", gpu_metrics({**ODD, misaligned_matmul_share: Missing("No", "Record longer.")})
    ),
    NotMeasured("no GPU", cpu_metrics(ODD, phases={})),
]
