from dataclasses import replace

from gpu_runs import FLAGS, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.attention import materialized_attention_share
from advisor.metrics.base import Missing
from advisor.metrics.gpu import device, launch_bound_index, matmul_share, membound_share
from advisor.metrics.normalization import unfused_norm_share
from advisor.metrics.settings import flags
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

EAGER = {flags: replace(FLAGS, compile=False), membound_share: 0.4, matmul_share: 0.5, launch_bound_index: 0.02}

CASES = [
    Fires(
        "memory-bound kernels take 40 % of GPU time",
        gpu_metrics(EAGER),
        code="model = torch.compile(model)",
        note="not compiled",
        state=State(phases={"forward": 0.04, "backward": 0.06}, membound=0.04, launch_idle=0.01, launch=0.02),
        removed=(0.067 + 0.03, 0.15 + 0.06, 0.24 + 0.08),
        intervention=Intervention(name="compile", settings={"mode": None}, safety=Safety.NUMERICS),
    ),
    Fires("just above a quarter", gpu_metrics({**EAGER, membound_share: 0.251})),
    DoesNotFire("just below a quarter", gpu_metrics({**EAGER, membound_share: 0.249})),
    Fires(
        "few memory-bound kernels, but late launches",
        gpu_metrics({**EAGER, membound_share: 0.1, launch_bound_index: 0.16}),
    ),
    DoesNotFire(
        "few memory-bound kernels, launches not late enough",
        gpu_metrics({**EAGER, membound_share: 0.1, launch_bound_index: 0.14}),
    ),
    Fires(
        "attention that writes its scores to memory is excluded: sdpa-flash covers it",
        gpu_metrics({**EAGER, materialized_attention_share: 0.5}),
        state=State(phases={"forward": 0.04, "backward": 0.06}, membound=0.04),
        removed=(0.033, 0.075, 0.12),
    ),
    Fires(
        "normalizations are excluded: unfused-norm covers them",
        gpu_metrics({**EAGER, membound_share: 0.4, unfused_norm_share: 0.2}),
        state=State(phases={"forward": 0.04, "backward": 0.06}, membound=0.04),
        removed=(0.033, 0.075, 0.12),
    ),
    DoesNotFire("compiled already", gpu_metrics({**EAGER, flags: FLAGS})),
    DoesNotFire("Triton does not support Pascal GPUs", gpu_metrics({**EAGER, device: a_gpu("Tesla P40", (6, 1))})),
    DoesNotFire("almost only large matmuls", gpu_metrics({**EAGER, matmul_share: 0.81, launch_bound_index: 0.04})),
    NotMeasured("no GPU", cpu_metrics({flags: EAGER[flags]}, phases={})),
    NotMeasured(
        "no kernels were recorded", gpu_metrics({**EAGER, membound_share: Missing("No kernels", "Record some.")})
    ),
]
