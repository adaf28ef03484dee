from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.gpu import host_stall_fraction, traced_kernels
from advisor.metrics.step import modeled_phases, step_time_uncertainty
from advisor.models.state import State

STALLED = {
    host_stall_fraction: 0.25,
    traced_kernels: 500,
    step_time_uncertainty: 0.2,
    modeled_phases: {"forward": 0.06, "backward": 0.04},
}

CASES = [
    Fires(
        "a quarter of the step",
        gpu_metrics(STALLED),
        then="25% of the step",
        state=State(phases={"forward": 0.06, "backward": 0.04}, launch=0.1),
        removed=(0.0, 0.1, 0.2),
        by_hand=True,
    ),
    Fires("just above the limit", gpu_metrics({**STALLED, host_stall_fraction: 0.101})),
    DoesNotFire("just below the limit", gpu_metrics({**STALLED, host_stall_fraction: 0.099})),
    DoesNotFire("the fraction is mostly a few long gaps", gpu_metrics({**STALLED, step_time_uncertainty: 0.31})),
    DoesNotFire("too few kernels", gpu_metrics({**STALLED, traced_kernels: 99})),
    NotMeasured("not a trace", gpu_metrics({host_stall_fraction: 0.25})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
