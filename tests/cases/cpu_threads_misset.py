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
        "the launcher set one thread, but eight are four times as fast",
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
        "as many threads as cores, but one thread is faster",
        of(threads=8, threads_from="default", thread_demand=8, best_threads=1, thread_gain=2.8),
        code="torch.set_num_threads(1)",
        then="with 1 thread instead of 8",
        note="nothing has set",
    ),
    Fires(
        "more threads than the container has cores",
        of(threads=64, threads_from="default", thread_demand=64, best_threads=8, thread_gain=1.1),
        code="torch.set_num_threads(8)",
    ),
    DoesNotFire(
        "more threads than the container has cores, at no cost",
        of(threads=64, threads_from="default", thread_demand=64, best_threads=8, thread_gain=1.02),
    ),
    Fires(
        "each rank uses all cores",
        of(threads=8, threads_from="default", thread_demand=16, best_threads=4, thread_gain=0.7, local_ranks=2),
        then="4 threads in each rank instead of 8",
        no_gain=True,
    ),
    Fires("the matmul's speedup is just above the limit", of(thread_gain=1.31)),
    DoesNotFire("the matmul's speedup is just below the limit", of(thread_gain=1.29)),
    Fires("the computing share is just above the limit", of(compute_fraction=0.31)),
    DoesNotFire("the computing share is just below the limit", of(compute_fraction=0.29)),
    DoesNotFire("eight cores and eight threads", of(thread_gain=1.0, thread_demand=8, threads=8, best_threads=8)),
    DoesNotFire("the program sets the number of threads", of(threads_from="program")),
    DoesNotFire(
        "the program sets the number of threads, and no other number was tried",
        of(threads_from="program", thread_gain=NOT_TRIED),
    ),
    DoesNotFire("on a GPU", of(on_cpu=False, thread_gain=NOT_TRIED)),
    DoesNotFire(
        "cores used by loader workers are not available to threads", of(thread_gain=1.0, best_threads=1, threads=1)
    ),
    NotMeasured("no other number was tried", of(thread_gain=NOT_TRIED)),
    NotMeasured("what set the number of threads is unknown", of(threads_from=Missing("No", "Yes."))),
    NotMeasured("phases were not measured", of(compute_fraction=Missing("No", "Yes."))),
]
