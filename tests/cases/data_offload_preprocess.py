from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.gpu import Device, device, gpu_busy_fraction
from advisor.metrics.host import cores_available, cores_per_rank
from advisor.metrics.input import (
    batch_time,
    compute_threads,
    loader,
    step_time_without_wait,
    worker_cpu_share,
    worker_efficiency,
)
from advisor.metrics.step import batches_per_step, data_wait_fraction
from advisor.models.state import State
from profiler.schema import LoaderFact

NO_CORE_LEFT = {
    device: Device(name="A100", capability=(8, 0), memory_total=80 << 30, count=1),
    gpu_busy_fraction: 0.4,
    loader: LoaderFact(id=1, num_workers=7, dataset="Images"),
    worker_efficiency: 1.0,
    batch_time: 1.0,
    worker_cpu_share: 0.95,
    step_time_without_wait: 0.05,
    data_wait_fraction: 0.5,
    batches_per_step: 1.0,
    compute_threads: 1.0,
    cores_available: 7,
    cores_per_rank: 8.0,
}


def without(metric):
    return given({key: value for key, value in NO_CORE_LEFT.items() if key is not metric})


CASES = [
    Fires(
        "seven workers on seven cores; data wait is half of the step",
        given(NO_CORE_LEFT),
        code='inputs.to("cuda"',
        then="on the GPU",
        note="num_workers=7",
        state=State(phases={"forward": 0.05}, supply=0.1),
        removed=(0.15, 0.3, 0.45),
    ),
    Fires(
        "the GPU is too busy for preprocessing",
        given({**NO_CORE_LEFT, gpu_busy_fraction: 0.91}),
        then="on other machines",
    ),
    Fires("GPU utilization was not recorded", without(gpu_busy_fraction), then="on the GPU"),
    Fires("the gain is just above the limit: 0.6 of the data wait", given({**NO_CORE_LEFT, data_wait_fraction: 0.084})),
    DoesNotFire("the gain is just below the limit", given({**NO_CORE_LEFT, data_wait_fraction: 0.083})),
    Fires("worker efficiency just above the limit", given({**NO_CORE_LEFT, worker_efficiency: 0.81})),
    DoesNotFire(
        "worker efficiency just below the limit: the workers are idle at times",
        given({**NO_CORE_LEFT, worker_efficiency: 0.79}),
    ),
    Fires("the workers' CPU share is high enough", given({**NO_CORE_LEFT, worker_cpu_share: 0.88})),
    DoesNotFire(
        "the workers' CPU share is just too low: they wait for storage", given({**NO_CORE_LEFT, worker_cpu_share: 0.79})
    ),
    DoesNotFire("there are cores for more workers", given({**NO_CORE_LEFT, cores_available: 15, cores_per_rank: 16.0})),
    NotMeasured("no GPU", without(device)),
    NotMeasured("worker efficiency is unknown", without(worker_efficiency)),
    NotMeasured("the workers' CPU share was not measured", without(worker_cpu_share)),
]
