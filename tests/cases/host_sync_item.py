from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import gpu_busy_fraction
from advisor.metrics.step import sync_causes, sync_fraction
from advisor.models.state import State


def waiting(share, **changes):
    return gpu_metrics({gpu_busy_fraction: 0.95 - share}, phases={"forward": 0.2, "backward": 0.3, "sync": share})


CASES = [
    Fires(
        "a fifth of the step",
        waiting(0.22),
        code=("set_sync_debug_mode", ".item() / 50"),
        then="22%",
        state=State(phases={"forward": 0.026, "backward": 0.052, "sync": 0.022}),
        removed=(0.11, 0.176, 0.22),
    ),
    Fires(
        "synchronization is not a separate phase",
        gpu_metrics({sync_fraction: 0.22, gpu_busy_fraction: 0.7}),
        state=State(phases={"forward": 0.03, "backward": 0.06, "other": 0.01}),
        removed=(0.11, 0.176, 0.22),
    ),
    Fires(
        "the GPU is idle for less time than the host waits",
        gpu_metrics({sync_fraction: 0.2, gpu_busy_fraction: 0.9}),
        state=State(phases={"forward": 0.08, "sync": 0.02}),
        removed=(0.05, 0.08, 0.1),
    ),
    *(
        Fires(f"mostly {cause}", gpu_metrics({sync_causes: {cause: 0.15, "copy_in": 0.05}}), then=said)
        for cause, said in (
            ("item", ".item()"),
            ("copy_out", ".numpy()"),
            ("branch", "torch.where"),
            ("shape", "nonzero"),
            ("grad_scaler", "GradScaler"),
            ("synchronize", "torch.cuda.synchronize()"),
        )
    ),
    DoesNotFire("copies to the GPU block", gpu_metrics({sync_causes: {"copy_in": 0.2, "item": 0.02}})),
    DoesNotFire("collectives of a backend that runs on the host", gpu_metrics({sync_causes: {"collective": 0.2}})),
    Fires("just above 3 %", waiting(0.031)),
    DoesNotFire("just below 3 %", waiting(0.029)),
    NotMeasured("no GPU", cpu_metrics({sync_fraction: 0.3}, phases={})),
    NotMeasured(
        "synchronization was not measured", gpu_metrics({sync_fraction: Missing("Not measured", "Run on a GPU.")})
    ),
]
