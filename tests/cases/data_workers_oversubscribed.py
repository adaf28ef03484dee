from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Missing
from advisor.metrics.gpu import Device, device
from advisor.metrics.host import cores_available, cores_per_rank, cpu_saturation, local_ranks, worker_cpu
from advisor.metrics.input import (
    batch_bytes,
    batch_time,
    compute_threads,
    loader,
    queue_empty_fraction,
    step_time_without_wait,
    worker_cpu_share,
    worker_demand,
)
from advisor.metrics.step import batches_per_step
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import LoaderFact, Place

CROWDED = {
    loader: LoaderFact(id=1, num_workers=16, place=Place(file="train.py", line=31)),
    batch_time: 0.016,
    worker_cpu_share: 0.5,
    step_time_without_wait: 0.022,
    batch_bytes: 1_000_000,
    compute_threads: 1.0,
    batches_per_step: 1.0,
    cores_available: 1,
    cores_per_rank: 2.0,
    worker_demand: 8.0,
    worker_cpu: 0.9,
    local_ranks: 1,
    cpu_saturation: 0.98,
    queue_empty_fraction: 0.0,
    device: Missing("No GPU was seen", "Run on one."),
}
STEP = State(phases={"forward": 0.010, "backward": 0.010, "other": 0.002})

CASES = [
    Fires(
        "sixteen workers on two cores",
        given(CROWDED),
        code="num_workers=2,  # was 16",
        state=STEP,
        removed=(0.0, 0.05, 0.25),
        host_memory=-14 * 52_000_000,
        intervention=Intervention(
            name="loader", settings={"file": "train.py", "line": 31, "num_workers": 2}, safety=Safety.EXACT
        ),
    ),
    Fires(
        "on a GPU, only work on the host gets faster",
        given({**CROWDED, device: Device(name="A100", capability=(8, 0), memory_total=80 << 30, count=1)}),
        state=STEP,
        removed=(0.0, 0.0045, 0.0227),
    ),
    DoesNotFire("CPU saturation just below the limit", given({**CROWDED, cpu_saturation: 0.949})),
    DoesNotFire("just enough cores for the workers' demand", given({**CROWDED, worker_demand: 1.0})),
    DoesNotFire("the queue is empty at times: the workers are needed", given({**CROWDED, queue_empty_fraction: 0.02})),
    DoesNotFire("two workers could not keep up", given({**CROWDED, worker_cpu: 2.1})),
    DoesNotFire("one worker per core, as torch suggests", given({**CROWDED, loader: LoaderFact(id=1, num_workers=2)})),
    DoesNotFire("no workers", given({**CROWDED, loader: LoaderFact(id=1)})),
    NotMeasured("CPU use was not sampled", given({k: v for k, v in CROWDED.items() if k is not cpu_saturation})),
]
