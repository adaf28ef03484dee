from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Missing
from advisor.metrics.host import cores_allowed, local_ranks
from advisor.metrics.settings import on_cpu
from advisor.metrics.threads import (
    best_threads,
    compute_fraction,
    thread_demand,
    thread_gain,
    threads,
    threads_from,
)
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

# The launcher set one thread, on eight cores.
ONE = {
    on_cpu: True,
    threads: 1,
    threads_from: "environment",
    thread_demand: 1,
    thread_gain: 4.0,
    best_threads: 8,
    compute_fraction: 0.9,
    cores_allowed: 8.0,
    local_ranks: 1,
}
NOT_TRIED = Missing("Other numbers of threads were not tried", "Record again.")


def of(**changes):
    named = {metric.name: metric for metric in ONE}
    return given({**ONE, **{named[name]: value for name, value in changes.items()}})


CASES = [
    Fires(
        "a launcher's one thread, where eight are four times as fast",
        given(ONE),
        code=("OMP_NUM_THREADS=8", "torch.set_num_threads(8)"),
        then="Compute with 8 threads instead of 1.",
        note="OMP_NUM_THREADS",
        state=State(phases={"forward": 0.03, "backward": 0.05, "optimizer": 0.01, "other": 0.01}),
        removed=(0.9 * 0.3, 0.9 * 0.6, 0.9 * 0.75),
        fault=False,
        intervention=Intervention(name="flags", settings={"threads": 8}, safety=Safety.NUMERICS),
    ),
    Fires(
        "as many threads as cores, where one is faster",
        of(threads=8, threads_from="default", thread_demand=8, best_threads=1, thread_gain=2.8),
        code="torch.set_num_threads(1)",
        then="with 1 thread instead of 8",
        note="nothing has set",
    ),
    Fires(
        "more threads than a container may use",
        of(threads=64, threads_from="default", thread_demand=64, best_threads=8, thread_gain=1.1),
        code="torch.set_num_threads(8)",
    ),
    DoesNotFire(
        "more threads than a container may use, which cost nothing",
        of(threads=64, threads_from="default", thread_demand=64, best_threads=8, thread_gain=1.02),
    ),
    Fires(
        "each rank takes all cores",
        of(threads=8, threads_from="default", thread_demand=16, best_threads=4, thread_gain=0.7, local_ranks=2),
        then="4 threads in each rank instead of 8",
        no_gain=True,
    ),
    Fires("the product is just enough faster", of(thread_gain=1.31)),
    DoesNotFire("the product is not enough faster", of(thread_gain=1.29)),
    Fires("just enough computing", of(compute_fraction=0.31)),
    DoesNotFire("not enough computing", of(compute_fraction=0.29)),
    DoesNotFire("eight cores and eight threads", of(thread_gain=1.0, thread_demand=8, threads=8, best_threads=8)),
    DoesNotFire("the program has chosen", of(threads_from="program")),
    DoesNotFire("the program has chosen, and no product was tried", of(threads_from="program", thread_gain=NOT_TRIED)),
    DoesNotFire("on a GPU", of(on_cpu=False, thread_gain=NOT_TRIED)),
    DoesNotFire("workers' cores are not there for threads", of(thread_gain=1.0, best_threads=1, threads=1)),
    NotMeasured("no other number was tried", of(thread_gain=NOT_TRIED)),
    NotMeasured("nobody saw who has set it", of(threads_from=Missing("No", "Yes."))),
    NotMeasured("phases were not measured", of(compute_fraction=Missing("No", "Yes."))),
]
