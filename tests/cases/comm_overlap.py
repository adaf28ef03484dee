from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.communication import (
    ddp,
    exposed_collective,
    exposed_collective_calls,
    exposed_collectives,
    overlaps_backward,
)
from advisor.metrics.gpu import gpu_computing_fraction
from advisor.metrics.settings import world_size
from advisor.metrics.step import modeled_phases
from advisor.models.state import State
from profiler.schema import DdpFact, Exchange


def exchanging(share: float, name: str = "alltoall", changes=None):
    """Return metrics of 100 ms steps on 8 ranks: `share` is exposed communication, and half computes."""
    longest = Exchange(name=name, group="0", calls=1000, seconds=share * 0.1, exposed=share * 0.1)
    values = {
        world_size: 8,
        exposed_collective: longest,
        exposed_collectives: share,
        gpu_computing_fraction: 0.5,
        modeled_phases: {"forward": 0.1 * (1 - share), "communication": 0.1 * share},
        ddp: Missing("No", "Yes."),
    }
    return gpu_metrics(values | (changes or {}))


UNSEEN = Missing("No", "Yes.")

CASES = [
    Fires(
        "a fifth of the step",
        exchanging(0.2),
        code="async_op=True",
        then="20% of the step",
        note="alltoall",
        state=State(phases={"forward": 0.08, "communication": 0.02}),
        removed=(0.0, 0.08, 0.16),
        by_hand=True,
    ),
    Fires(
        "communication is hidden only while the GPU computes",
        exchanging(0.6),
        state=State(phases={"forward": 0.04, "communication": 0.06}),
        removed=(0.0, 0.2, 0.4),
    ),
    Fires("one collective per parameter", exchanging(0.2, "allreduce"), code="DistributedDataParallel"),
    Fires(
        "one collective per parameter: merging them saves latency",
        exchanging(0.6, "allreduce", {exposed_collective_calls: 404.0}),
        then="Merge 404 collectives",
        state=State(phases={"forward": 0.04, "communication": 0.06}),
        removed=(0.0, 0.24, 0.48),
    ),
    Fires(
        "DistributedDataParallel in a trace",
        exchanging(0.2, "allreduce", {overlaps_backward: True}),
        then="Send fewer bytes",
    ),
    Fires("sharded weights", exchanging(0.2, "allgather"), code="set_modules_to_forward_prefetch"),
    Fires("sharded gradients", exchanging(0.2, "reducescatter"), code="fully_shard"),
    Fires("just above the limit", exchanging(0.101)),
    DoesNotFire("just below the limit", exchanging(0.099)),
    DoesNotFire("DistributedDataParallel, which has its own rules", exchanging(0.2, changes={ddp: DdpFact(id=1)})),
    DoesNotFire("one rank", gpu_metrics({world_size: 1})),
    NotMeasured(
        "no collective was recorded", gpu_metrics({world_size: 8, exposed_collectives: 0.2, exposed_collective: UNSEEN})
    ),
    NotMeasured("no GPU", cpu_metrics({world_size: 8}, phases={})),
]
