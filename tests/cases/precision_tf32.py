from dataclasses import replace

from gpu_runs import FLAGS, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import (
    achieved_matmul_flops,
    device,
    launch_bound_index,
    matmul_share,
    simt_fp32_gemm_share,
)
from advisor.metrics.settings import flags
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety


def simt(share: float = 0.7):
    return {matmul_share: 0.7, simt_fp32_gemm_share: share, achieved_matmul_flops: 16e12}


STATE = State(phases={"forward": 0.0315, "backward": 0.0635, "optimizer": 0.005}, matmul=0.070, membound=0.018)

NEW = replace(a_gpu("NVIDIA RTX 2000 Ada Generation", (8, 9)), multiprocessors=22)

UNKNOWN = Missing("Shapes were not recorded", "Record for longer.")

CASES = [
    Fires(
        "fp32 without tensor cores on an A100",
        gpu_metrics(simt()),
        code='torch.set_float32_matmul_precision("high")',
        state=STATE,
        removed=(1 - 1 / 2.09, 1 - 1 / 2.38, 1 - 1 / 2.57),
        memory=0,
        intervention=Intervention(name="flags", settings={"matmul_precision": "high"}, safety=Safety.NUMERICS),
    ),
    Fires("just above the limit", gpu_metrics(simt(0.201))),
    DoesNotFire("just below the limit", gpu_metrics(simt(0.199))),
    DoesNotFire("TF32 is allowed already", gpu_metrics({**simt(), flags: replace(FLAGS, matmul_precision="high")})),
    Fires(
        "a GeForce reaches all of its TF32 peak, and two thirds of its equal fp32 peak",
        gpu_metrics({**simt(), device: a_gpu("NVIDIA GeForce RTX 4090", (8, 9)), achieved_matmul_flops: UNKNOWN}),
        state=State(phases={"forward": 0.03, "backward": 0.07}, matmul=0.1),
        removed=(1 - 0.65 / 0.8, 1 - 0.65 / 0.95, 1 - 0.65),
    ),
    DoesNotFire("a V100 has no TF32", gpu_metrics({**simt(), device: a_gpu("Tesla V100-SXM2-16GB", (7, 0))})),
    DoesNotFire("launch-bound", gpu_metrics({**simt(), launch_bound_index: 0.3})),
    Fires("a GPU that is in no table: its rates are derived", gpu_metrics({**simt(), device: NEW})),
    NotMeasured("a GPU whose peak rates are unknown", gpu_metrics({**simt(), device: a_gpu("NVIDIA Next", (8, 6))})),
    NotMeasured(
        "kernels were not recorded",
        gpu_metrics({**simt(), simt_fp32_gemm_share: Missing("No kernels", "Record some.")}),
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
