from gpu_runs import a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import conv_share, device, layout_share, matmul_share
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

NCHW = {conv_share: 0.7, matmul_share: 0.7, layout_share: 0.15}

CASES = [
    Fires(
        "a ResNet in NCHW",
        gpu_metrics(NCHW),
        code="memory_format=torch.channels_last",
        then="15%",
        state=State(phases={"forward": 0.03, "backward": 0.07}, matmul=0.07),
        removed=(0.0, 0.0913, 0.1815),
        intervention=Intervention(name="channels_last", settings={}, safety=Safety.NUMERICS),
    ),
    Fires("convolutions take just over 30 % of GPU time", gpu_metrics({**NCHW, conv_share: 0.301})),
    DoesNotFire(
        "convolutions take just under 30 % of GPU time, conversions less than 10 %",
        gpu_metrics({**NCHW, conv_share: 0.299, layout_share: 0.09}),
    ),
    Fires(
        "few convolutions, but layout conversions take just over 10 % of GPU time",
        gpu_metrics({**NCHW, conv_share: 0.1, layout_share: 0.101}),
    ),
    DoesNotFire(
        "few convolutions, and layout conversions take just under 10 % of GPU time",
        gpu_metrics({**NCHW, conv_share: 0.1, layout_share: 0.099}),
    ),
    Fires("layout conversions take just over 5 % of GPU time", gpu_metrics({**NCHW, layout_share: 0.051})),
    DoesNotFire("layout conversions take just under 5 % of GPU time", gpu_metrics({**NCHW, layout_share: 0.049})),
    Fires(
        "TF32 convolutions are converted too, and the conversion time is saved",
        gpu_metrics(NCHW),
        state=State(phases={"forward": 0.04, "backward": 0.06}, matmul=0.07, membound=0.02),
        removed=(0.02 * 0.75 / 2 / 0.1, 0.0913 + 0.02 * 0.75 * 0.8 / 0.1, 0.1815 + 0.02 * 0.75 * 0.95 / 0.1),
    ),
    DoesNotFire("no tensor cores", gpu_metrics({**NCHW, device: a_gpu("Tesla P40", (6, 1))})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
    NotMeasured("no kernels were recorded", gpu_metrics({**NCHW, layout_share: Missing("No kernels", "Record some.")})),
]
