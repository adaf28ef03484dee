from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.gpu import allocation_stall_fraction
from advisor.metrics.step import modeled_phases, steady_step_count
from advisor.models.state import State

CHURN = {
    allocation_stall_fraction: 0.2,
    steady_step_count: 3,
    modeled_phases: {"forward": 0.06, "backward": 0.04},
}

CASES = [
    Fires(
        "a fifth of the step",
        gpu_metrics(CHURN),
        then="20% of the step",
        state=State(phases={"forward": 0.06, "backward": 0.04}),
        removed=(0.1, 0.16, 0.2),
        by_hand=True,
    ),
    Fires("just above the limit", gpu_metrics({**CHURN, allocation_stall_fraction: 0.0301})),
    DoesNotFire("just below the limit", gpu_metrics({**CHURN, allocation_stall_fraction: 0.0299})),
    DoesNotFire("one step, possibly the first with its shapes", gpu_metrics({**CHURN, steady_step_count: 1})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
