from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.batching import Batchable, batchable, batchable_share
from advisor.metrics.gpu import gpu_busy_fraction, launch_bound_index, matmul_share
from advisor.models.state import State


def one_by_one(part, *, saved=0.8, late=0.0, experts=False, idle=0.02):
    found = Batchable(
        calls=768.0,
        together=64.0,
        size="(2048 x 64) by (64 x 512)",
        experts=experts,
        share=part,
        saved=saved,
        late=late,
    )
    changes = {batchable: found, batchable_share: part, gpu_busy_fraction: 1.0, matmul_share: 2 * part}
    return gpu_metrics({**changes, launch_bound_index: idle})


CASES = [
    Fires(
        "one matmul per attention head",
        one_by_one(0.2),
        code="torch.bmm",
        then="768 small matmuls per step run one by one, 64 in a row",
        note="(2048 x 64) by (64 x 512)",
        state=State(phases={"forward": 0.03, "backward": 0.07}, matmul=0.04),
        removed=(0.4 * 0.2, 0.64 * 0.2, 0.8 * 0.2),
        by_hand=True,
    ),
    Fires(
        "experts, launch-bound",
        one_by_one(0.1, saved=0.0, late=0.5, experts=True, idle=0.4),
        code="grouped_mm",
        then="one grouped matmul for all experts",
        state=State(phases={"forward": 0.03, "backward": 0.07}, matmul=0.02, launch_idle=0.04),
        removed=(0.25 * 0.4, 0.4 * 0.4, 0.5 * 0.4),
    ),
    Fires("just above the limit", one_by_one(0.0626)),
    DoesNotFire("just below the limit", one_by_one(0.0624)),
    DoesNotFire("each matmul is large enough to fill the GPU", one_by_one(0.6, saved=0.05)),
    DoesNotFire("each matmul depends on the previous one", gpu_metrics({batchable: None, batchable_share: 0.0})),
    NotMeasured("shapes were not recorded", gpu_metrics({batchable: Missing("No shapes", "Record some.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
