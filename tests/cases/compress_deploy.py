from gpu_runs import gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Goals, Missing
from advisor.metrics.memory import memory_pressure
from advisor.metrics.step import step_time_mean

LATENCY = Goals(goal="latency")

CASES = [
    Fires(
        "the trained model is to answer quickly",
        gpu_metrics(goals=LATENCY),
        code="quantize_",
        then="Training does not get faster",
        no_gain=True,
        fault=False,
    ),
    Fires("on a CPU too, where memory is not told apart", given({step_time_mean: 0.1}, LATENCY)),
    DoesNotFire("training is to be fast", gpu_metrics(goals=Goals(goal="throughput"))),
    DoesNotFire("the training does not fit yet", gpu_metrics({memory_pressure: True}, goals=LATENCY)),
    NotMeasured("nobody said what the run is for", gpu_metrics()),
    NotMeasured("other things were declared", gpu_metrics(goals=Goals(gpu_price=2.0))),
    NotMeasured("there was no step", gpu_metrics({step_time_mean: Missing("No", "Yes.")}, goals=LATENCY)),
]
