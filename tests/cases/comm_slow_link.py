from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.communication import exposed_bandwidth, exposed_collective
from advisor.metrics.settings import world_size
from advisor.metrics.step import exposed_comm_fraction, modeled_phases
from advisor.models.state import State
from profiler.schema import Exchange


def reducing(changes=None, *, size: int = 4_000_000, waited: float | None = None):
    """Return metrics of 100 ms steps on 8 ranks: 40 ms are exposed all-reduces at 2 GB/s."""
    calls = 10
    longest = Exchange(
        name="allreduce", group="0", calls=calls, seconds=0.04, exposed=0.04, bytes=size * calls, waited=waited
    )
    values = {
        world_size: 8,
        exposed_collective: longest,
        exposed_bandwidth: 2e9,
        exposed_comm_fraction: 0.4,
        modeled_phases: {"forward": 0.06, "communication": 0.04},
    }
    return gpu_metrics(values | (changes or {}))


CASES = [
    Fires(
        "a link at 2 GB/s",
        reducing(),
        code="NCCL_DEBUG=INFO",
        then="Either this rank waits",
        note="allreduce",
        state=State(phases={"forward": 0.06, "communication": 0.04}),
        removed=(0.0, 0.16, 0.32),
        by_hand=True,
    ),
    Fires(
        "waiting for other ranks was measured and excluded", reducing(waited=0.01), then="The data takes a slow path"
    ),
    Fires("bandwidth just below the limit", reducing({exposed_bandwidth: 4.99e9})),
    DoesNotFire("bandwidth just above the limit", reducing({exposed_bandwidth: 5.01e9})),
    Fires("communication takes just over 10 % of the step", reducing({exposed_comm_fraction: 0.101})),
    DoesNotFire("communication takes just under 10 % of the step", reducing({exposed_comm_fraction: 0.099})),
    Fires("messages just large enough", reducing(size=1_000_000)),
    DoesNotFire("messages just too small: latency dominates", reducing(size=999_999)),
    DoesNotFire("one rank", reducing({world_size: 1})),
    NotMeasured("the number of bytes is unknown", reducing({exposed_bandwidth: Missing("No", "Yes.")})),
    NotMeasured("no GPU", cpu_metrics({world_size: 8}, phases={})),
]
