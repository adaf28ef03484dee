from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.communication import ddp
from advisor.metrics.copies import Copies, gradient_copies, gradient_copy_fraction
from advisor.metrics.step import modeled_phases
from advisor.models.state import State
from profiler.schema import DdpFact

NO = Missing("No", "Yes.")


def copying(part, fact=NO):
    """Return metrics of 100 ms steps: copying takes 1 ms; the rest of `part` is a fifth of the waiting for launches."""
    return gpu_metrics(
        {
            gradient_copies: Copies(calls=161, seconds=0.001, late=0.2, share=0.02, place=""),
            gradient_copy_fraction: part,
            modeled_phases: {"forward": 0.04, "backward": 0.06},
            ddp: fact,
        }
    )


CASES = [
    Fires(
        "a twentieth of the step",
        copying(0.05),
        code="gradient_as_bucket_view=True",
        then="161 gradients",
        state=State(phases={"forward": 0.04, "backward": 0.06}, launch_idle=0.02),
        removed=(0.5 * 0.05, 0.8 * 0.05, 0.05),
        by_hand=True,
    ),
    Fires("gradients of 400 bytes", copying(0.05, DdpFact(id=1, passes=4, gradient_bytes=400)), memory=-400),
    Fires("just above the limit", copying(0.0201)),
    DoesNotFire("just below the limit", copying(0.0199)),
    NotMeasured("operators were not recorded", gpu_metrics({gradient_copy_fraction: NO})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
