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


def fp32(share: float = 0.7, **changes: object):
    return {flags: PLAIN, matmul_share: 0.7, fp32_matmul_share: share, simt_fp32_matmul_share: share, **changes}


STATE = State(phases={"forward": 0.0315, "backward": 0.0635, "optimizer": 0.005}, matmul=0.070, membound=0.018)

CASES = [
    Fires(
        "fp32 on an A100, with a measured matmul rate",
        gpu_metrics({**fp32(), achieved_matmul_flops: 16e12}),
        code=("torch.bfloat16", "loss.backward()"),
        absent="scaler.",
        note="A100",
        state=STATE,
        removed=(1 - 1 / 2.38, 1 - 1 / 3.19, 1 - 1 / 3.73),
        memory=2 * 10**8 - 0.45 * 46e9,
        fault=False,
        intervention=Intervention(name="autocast", settings={"dtype": "bfloat16"}, safety=Safety.NUMERICS),
    ),
    Fires("just above the limit", gpu_metrics(fp32(0.201)), then="no GradScaler"),
    DoesNotFire("just below the limit", gpu_metrics(fp32(0.199))),
    DoesNotFire("already under autocast", gpu_metrics({**fp32(), flags: FLAGS})),
    DoesNotFire(
        "a GPU without bf16 tensor cores", gpu_metrics({**fp32(), device: a_gpu("Tesla V100-SXM2-16GB", (7, 0))})
    ),
    DoesNotFire("a Pascal GPU that is not in the table", gpu_metrics({**fp32(), device: a_gpu("Tesla P40", (6, 1))})),
    Fires("just below launch-bound", gpu_metrics({**fp32(), launch_bound_index: 0.29})),
    DoesNotFire(
        "launch-bound: faster kernels would wait for the host", gpu_metrics({**fp32(), launch_bound_index: 0.3})
    ),
    Fires(
        "a GPU that is in no table: its rates are derived",
        gpu_metrics({**fp32(), device: replace(a_gpu("NVIDIA RTX 2000 Ada Generation", (8, 9)), multiprocessors=22)}),
    ),
    NotMeasured("a GPU whose peak rates are unknown", gpu_metrics({**fp32(), device: a_gpu("NVIDIA Next", (8, 6))})),
    NotMeasured(
        "the compute capability is unknown", gpu_metrics({**fp32(), device: replace(a_gpu(), capability=None)})
    ),
    NotMeasured(
        "no kernels were recorded", gpu_metrics({**fp32(), fp32_matmul_share: Missing("No kernels", "Record some.")})
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
