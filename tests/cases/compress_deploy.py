from gpu_runs import gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Goals, Missing
from advisor.metrics.memory import memory_pressure
from advisor.metrics.step import step_time_mean

LATENCY = Goals(goal="latency")

CASES = [
    Fires(
        "the goal is low inference latency",
        gpu_metrics(goals=LATENCY),
        code="quantize_",
        then="Training does not get faster",
        no_gain=True,
        fault=False,
    ),
    Fires("on a CPU, where memory was not measured", given({step_time_mean: 0.1}, LATENCY)),
    DoesNotFire("the goal is training throughput", gpu_metrics(goals=Goals(goal="throughput"))),
    DoesNotFire("training is still short of memory", gpu_metrics({memory_pressure: True}, goals=LATENCY)),
    NotMeasured("no goal was declared", gpu_metrics()),
    NotMeasured("only other goals were declared", gpu_metrics(goals=Goals(gpu_price=2.0))),
    NotMeasured("there was no step", gpu_metrics({step_time_mean: Missing("No", "Yes.")}, goals=LATENCY)),
]
