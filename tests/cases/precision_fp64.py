from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import fp64_share, gpu_computing_fraction
from advisor.metrics.settings import fp64_parameters, on_cpu
from advisor.metrics.step import modeled_phases
from advisor.models.state import State

PHASES = {"forward": 0.03, "backward": 0.07}
DOUBLE = {fp64_share: 0.4, gpu_computing_fraction: 0.5, modeled_phases: PHASES}


def on_a_cpu(part):
    return cpu_metrics({on_cpu: True, fp64_parameters: part, modeled_phases: PHASES}, phases=PHASES)


CASES = [
    Fires(
        "fp64 kernels take 40 % of GPU time",
        gpu_metrics(DOUBLE),
        code="torch.from_numpy(array).float()",
        then="40% of the GPU's time",
        state=State(phases=PHASES),
        removed=(0.2 / 3, 0.1, 0.175),
        by_hand=True,
    ),
    Fires("fp64 kernels just above the limit", gpu_metrics({**DOUBLE, fp64_share: 0.051})),
    DoesNotFire("fp64 kernels just below the limit", gpu_metrics({**DOUBLE, fp64_share: 0.049})),
    NotMeasured(
        "kernels were not recorded", gpu_metrics({**DOUBLE, fp64_share: Missing("No kernels", "Record some.")})
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
    Fires(
        "a model in fp64 on a CPU",
        on_a_cpu(0.5),
        then="50% of its parameters",
        state=State(phases=PHASES),
        removed=(1 - 1 / 1.1, 1 - 1 / 1.7, 1 - 1 / 2.2),
        by_hand=True,
    ),
    DoesNotFire("just under half of the parameters in fp64, on a CPU", on_a_cpu(0.49)),
    NotMeasured("no model was seen", on_a_cpu(Missing("No model", "Train one."))),
]
