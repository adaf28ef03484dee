from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import idle_queued_fraction, idle_queued_us
from advisor.metrics.step import modeled_phases
from advisor.models.state import State

HELD = {
    idle_queued_fraction: 0.5,
    idle_queued_us: 70.0,
    modeled_phases: {"forward": 0.04, "backward": 0.06},
}

CASES = [
    Fires(
        "half of the step",
        gpu_metrics(HELD),
        then="50% of the step",
        note="A100",
        state=State(phases={"forward": 0.04, "backward": 0.06}),
        removed=(0.0, 0.2, 0.45),
        by_hand=True,
    ),
    Fires("just above the limit", gpu_metrics({**HELD, idle_queued_fraction: 0.101})),
    DoesNotFire("just below the limit", gpu_metrics({**HELD, idle_queued_fraction: 0.099})),
    Fires("the gap per kernel is just long enough", gpu_metrics({**HELD, idle_queued_us: 10.1})),
    DoesNotFire(
        "the gap per kernel is as short as between tiny kernels of a CUDA graph",
        gpu_metrics({**HELD, idle_queued_us: 9.9}),
    ),
    NotMeasured(
        "no GPU activity was recorded", gpu_metrics({idle_queued_fraction: Missing("No window", "Record some.")})
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
