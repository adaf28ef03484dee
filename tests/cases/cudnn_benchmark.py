from dataclasses import replace

from gpu_runs import FLAGS, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import conv_share, matmul_share
from advisor.metrics.settings import flags
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

OFF = replace(FLAGS, cudnn_benchmark=False)
IMAGES = {flags: OFF, conv_share: 0.6, matmul_share: 0.8}

CASES = [
    Fires(
        "convolutions take 60 % of GPU time",
        gpu_metrics(IMAGES),
        code="cudnn.benchmark = True",
        state=State(phases={"forward": 0.03, "backward": 0.07}, matmul=0.08),
        removed=(0.0, 0.024, 0.09),
        intervention=Intervention(name="flags", settings={"cudnn_benchmark": True}, safety=Safety.NUMERICS),
    ),
    Fires("convolutions take just over 30 % of GPU time", gpu_metrics({**IMAGES, conv_share: 0.301})),
    DoesNotFire("convolutions take just under 30 % of GPU time", gpu_metrics({**IMAGES, conv_share: 0.299})),
    DoesNotFire("cudnn.benchmark is on already", gpu_metrics({**IMAGES, flags: replace(OFF, cudnn_benchmark=True)})),
    NotMeasured("cudnn.benchmark could not be read", gpu_metrics({**IMAGES, flags: FLAGS})),
    DoesNotFire("the program requires determinism", gpu_metrics({**IMAGES, flags: replace(OFF, deterministic=True)})),
    NotMeasured("no GPU", cpu_metrics({flags: OFF, conv_share: 0.6}, phases={})),
    NotMeasured("no kernels were recorded", gpu_metrics({**IMAGES, conv_share: Missing("No kernels", "Record some.")})),
]
