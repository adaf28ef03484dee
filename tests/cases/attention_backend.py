from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.attention import Backend, slower_backend, slower_backend_share
from advisor.metrics.base import Missing
from advisor.metrics.gpu import gpu_computing_fraction
from advisor.metrics.step import modeled_phases
from advisor.models.state import State

PHASES = {"forward": 0.03, "backward": 0.07}
PEAK = 312e12


def attending(name="efficient", *, masked=True, efficiency=0.25, part=0.4):
    """Return metrics of an A100 on which attention takes `part` of the kernels' time, at this share of the peak."""
    backend = Backend(name=name, masked=masked, keys=4096, seconds=1.0, flop=efficiency * PEAK)
    return gpu_metrics(
        {slower_backend: backend, slower_backend_share: part, gpu_computing_fraction: 1.0, modeled_phases: PHASES}
    )


CASES = [
    Fires(
        "a mask prevents flash attention",
        attending(),
        code="flex_attention",
        then="the mask prevents it. Attention takes 40% of the step",
        note="4096 tokens",
        state=State(phases=PHASES),
        removed=(0.4 * (1 - 1 / 1.1), 0.4 / 3, 0.4 * (1 - 1 / 2.2)),
        by_hand=True,
    ),
    Fires("FlashAttention-2 on Hopper", attending("flash2", masked=False), code="CUDNN_ATTENTION"),
    Fires("Triton on AMD", attending("triton", masked=False), code="preferred_rocm_fa_library"),
    Fires(
        "the gain is limited to the best known efficiency",
        attending(efficiency=0.49),
        state=State(phases=PHASES),
        removed=(0.4 * (1 - 1 / 1.1), 0.4 / 3, 0.4 * (1 - 0.49 / 0.75)),
    ),
    DoesNotFire("just above half of the peak", attending(efficiency=0.51)),
    Fires("attention takes just over 10 % of the step", attending(part=0.101)),
    DoesNotFire("attention takes just under 10 % of the step", attending(part=0.099)),
    DoesNotFire("the fastest kernel already, short sequences, or no attention", gpu_metrics({slower_backend: None})),
    NotMeasured("shapes were not recorded", gpu_metrics({slower_backend: Missing("No shapes", "Record longer.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
