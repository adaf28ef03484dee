from dataclasses import replace

from gpu_runs import FLAGS, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import (
    achieved_matmul_flops,
    device,
    fp32_matmul_share,
    launch_bound_index,
    matmul_share,
    simt_fp32_matmul_share,
)
from advisor.metrics.settings import flags
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

PLAIN = replace(FLAGS, autocast=False, autocast_dtype=None)
V100 = a_gpu("Tesla V100-SXM2-16GB", (7, 0), 16)


def fp32(share: float = 0.7):
    return {
        flags: PLAIN,
        device: V100,
        matmul_share: 0.7,
        fp32_matmul_share: share,
        simt_fp32_matmul_share: share,
        achieved_matmul_flops: 13e12,
    }


STATE = State(phases={"forward": 0.0315, "backward": 0.0635, "optimizer": 0.005}, matmul=0.070, membound=0.018)

CASES = [
    Fires(
        "fp32 on a V100",
        gpu_metrics(fp32()),
        code=("torch.float16", "init_scale=2.0**16", "growth_interval=2000", "scaler.unscale_(optimizer)"),
        absent="bfloat16",
        state=STATE,
        removed=(1 - 1 / 1.84, 1 - 1 / 2.63, 1 - 1 / 3.15),
        intervention=Intervention(name="fp16_autocast", settings={}, safety=Safety.NUMERICS),
    ),
    Fires("fp32 on a T4", gpu_metrics({**fp32(), device: a_gpu("Tesla T4", (7, 5), 16)}), then="Tesla T4"),
    Fires("just above the limit", gpu_metrics(fp32(0.201))),
    DoesNotFire("just below the limit", gpu_metrics(fp32(0.199))),
    DoesNotFire("an A100 has bf16", gpu_metrics({**fp32(), device: a_gpu()})),
    DoesNotFire("a P40 has no tensor cores", gpu_metrics({**fp32(), device: a_gpu("Tesla P40", (6, 1))})),
    DoesNotFire("already under autocast", gpu_metrics({**fp32(), flags: FLAGS})),
    DoesNotFire("launch-bound", gpu_metrics({**fp32(), launch_bound_index: 0.3})),
    NotMeasured(
        "launch gaps were not measured", gpu_metrics({**fp32(), launch_bound_index: Missing("No window", "Open one.")})
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
