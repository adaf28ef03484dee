from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.host import cores_available, cores_per_rank
from advisor.metrics.input import (
    batch_bytes,
    batch_time,
    compute_threads,
    loader,
    queue_empty_fraction,
    step_time_without_wait,
    worker_cpu_share,
    worker_efficiency,
)
from advisor.metrics.step import batches_per_step, data_wait_fraction, step_time_mean
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import LoaderFact, Place

STARVED = {
    loader: LoaderFact(id=1, num_workers=1, batch_size=16, prefetch_factor=2, place=Place(file="train.py", line=31)),
    batch_time: 0.2,
    worker_cpu_share: 1.0,
    step_time_without_wait: 0.05,
    batch_bytes: 1_000_000,
    compute_threads: 1.0,
    batches_per_step: 1.0,
    data_wait_fraction: 0.75,
    step_time_mean: 0.2,
    cores_available: 7,
    cores_per_rank: 8.0,
    worker_efficiency: 1.0,
}

CASES = [
    Fires(
        "one worker; the step without data wait is four times as fast",
        given(STARVED),
        code=("num_workers=5,  # was 1", "persistent_workers=True"),
        absent="prefetch_factor",
        state=State(phases={"forward": 0.05}, supply=0.2),
        removed=(0.7, 0.75, 0.75),
        host_memory=4 * 52_000_000,
        intervention=Intervention(
            name="loader",
            settings={"file": "train.py", "line": 31, "num_workers": 5, "persistent_workers": True},
            safety=Safety.EXACT,
        ),
    ),
    Fires(
        "a sleeping loader on two cores",
        given(
            {
                **STARVED,
                batch_time: 0.087,
                step_time_without_wait: 0.018,
                worker_cpu_share: 0.05,
                cores_available: 1,
                cores_per_rank: 2.0,
            }
        ),
        code="num_workers=6,",
    ),
    DoesNotFire("the workers already use all cores", given({**STARVED, cores_available: 1, cores_per_rank: 2.0})),
    DoesNotFire("data wait just below the limit", given({**STARVED, data_wait_fraction: 0.049})),
    Fires(
        "four workers deliver at the same time: one fetch in four waits, and data wait is 59 % of the step",
        given(
            {
                **STARVED,
                loader: LoaderFact(id=1, num_workers=4, batch_size=4),
                batch_time: 0.1,
                worker_cpu_share: 0.02,
                step_time_without_wait: 0.0103,
                data_wait_fraction: 0.59,
                step_time_mean: 0.025,
                queue_empty_fraction: 0.25,
            }
        ),
    ),
    Fires("worker efficiency just above the limit", given({**STARVED, worker_efficiency: 0.81})),
    DoesNotFire(
        "worker efficiency just below the limit: the workers are idle at times",
        given({**STARVED, worker_efficiency: 0.79}),
    ),
    DoesNotFire("enough workers", given({**STARVED, loader: LoaderFact(id=1, num_workers=5)})),
    DoesNotFire(
        "all cores compute: another worker would only take time from them",
        given({**STARVED, batch_time: 0.1, step_time_without_wait: 0.1, step_time_mean: 0.105, compute_threads: 8.0}),
    ),
    DoesNotFire("no workers: data-workers-zero applies", given({loader: LoaderFact(id=1)})),
    NotMeasured(
        "batch preparation was not timed", given({key: v for key, v in STARVED.items() if key is not batch_time})
    ),
]
