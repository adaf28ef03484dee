from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_runs import ADAM, FLAGS, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Metric, Missing
from advisor.metrics.communication import comm_total, ddp, exposed_transfer, reductions_per_step
from advisor.metrics.gpu import device
from advisor.metrics.settings import flags, optimizers, world_size
from advisor.metrics.step import micro_steps_per_step
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import DdpFact, Place

UNSEEN = Missing("No", "Yes.")
MADE = DdpFact(id=1, place=Place(file="train.py", line=7), passes=800, reduced=800)


def accumulating(
    k: float,
    reductions: object,
    exposed: object = 0.04,
    more: Mapping[Metric[Any], object] | None = None,
    **changed: object,
):
    """Return metrics of 100 ms steps, with 40 ms in exposed reductions."""
    settings = {"ddp": True, **changed}
    return gpu_metrics(
        {
            **(more or {}),
            world_size: 2,
            flags: replace(FLAGS, **settings),
            micro_steps_per_step: k,
            reductions_per_step: reductions,
            exposed_transfer: exposed,
            ddp: MADE,
        }
    )


CASES = [
    Fires(
        "each of eight micro-batches reduces gradients",
        accumulating(8.0, 8.0),
        code=("accumulate = 8", "model.no_sync()"),
        then="first 7 of 8",
        note="train.py, line 7",
        # 7/8 of 40 ms, in the backward pass, as steps here do not measure communication.
        state=State(phases={"forward": 0.02, "backward": 0.08}),
        removed=(0.175, 0.28, 0.35),
        intervention=Intervention(name="no_sync", settings={"passes": 8}, safety=Safety.NUMERICS),
        memory=0,
    ),
    Fires(
        "communication is a separate phase: the saving is there",
        accumulating(4.0, 4.0),
        state=State(phases={"forward": 0.03, "backward": 0.03, "communication": 0.04}),
        removed=(0.15, 0.24, 0.30),
    ),
    Fires(
        "without a GPU, hidden reductions use the cores that compute",
        accumulating(8.0, 8.0, more={device: UNSEEN, comm_total: 0.06}),
        state=State(phases={"forward": 0.02, "backward": 0.08}),
        removed=(0.175, 0.35, 0.525),  # half and all of 7/8 of 40 ms, and 7/8 of 60 ms
    ),
    Fires(
        "without a GPU, no hidden reductions",
        accumulating(8.0, 8.0, more={device: UNSEEN, comm_total: 0.04}),
        state=State(phases={"forward": 0.02, "backward": 0.08}),
        removed=(0.175, 0.28, 0.35),
    ),
    Fires("half of the passes under no_sync", accumulating(8.0, 4.0), code="accumulate = 8", by_hand=True),
    Fires("two micro-batches, just above the limit", accumulating(2.0, 1.51)),
    Fires("the cost was not measured: advice without a gain", accumulating(8.0, 8.0, UNSEEN), no_gain=True),
    DoesNotFire("just below the limit", accumulating(2.0, 1.49)),
    DoesNotFire("no_sync is used", accumulating(8.0, 1.0)),
    DoesNotFire("nothing is accumulated", accumulating(1.0, 1.0)),
    DoesNotFire("one rank", gpu_metrics({micro_steps_per_step: 8.0})),
    DoesNotFire("several independent jobs", gpu_metrics({world_size: 2, micro_steps_per_step: 8.0})),
    DoesNotFire("FSDP", accumulating(8.0, UNSEEN, fsdp=True)),
    DoesNotFire(
        "backward passes for a GAN's two optimizers",
        gpu_metrics(
            {
                world_size: 2,
                flags: replace(FLAGS, ddp=True),
                micro_steps_per_step: 3.0,
                reductions_per_step: 3.0,
                optimizers: (ADAM, replace(ADAM, id=2)),
            }
        ),
    ),
    NotMeasured("reductions were not counted", accumulating(8.0, UNSEEN)),
]
