from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.copies import Copies, layout_copies, layout_copy_share
from advisor.metrics.gpu import gpu_busy_fraction, membound_share
from advisor.models.state import State


def copying(part, busy=1.0, place="Attention"):
    copies = Copies(calls=24, seconds=part * 0.1, late=0.0, share=part, place=place)
    return gpu_metrics(
        {layout_copies: copies, layout_copy_share: part, gpu_busy_fraction: busy, membound_share: 2 * part}
    )


CASES = [
    Fires(
        "a fifth of the step",
        copying(0.2),
        code="scaled_dot_product_attention",
        then="20% of the GPU's time",
        note="Attention",
        state=State(phases={"forward": 0.03, "backward": 0.07}, membound=0.04),
        removed=(0.2 * 0.2, 0.2 * 0.5, 0.2 * 0.9),
        by_hand=True,
    ),
    Fires("modules were not recorded", copying(0.2, place="")),
    Fires("just above the limit", copying(0.101)),
    DoesNotFire("just below the limit", copying(0.099)),
    DoesNotFire("16 % of GPU-busy time, but the GPU is idle half of the time", copying(0.16, busy=0.5)),
    NotMeasured(
        "operators were not recorded", gpu_metrics({layout_copy_share: Missing("No operators", "Record some.")})
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
