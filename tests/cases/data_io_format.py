from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.host import cores_available, cores_per_rank
from advisor.metrics.input import (
    batch_time,
    compute_threads,
    files_per_sample,
    loader,
    step_time_without_wait,
    worker_cpu_share,
    workers_are_behind,
)
from advisor.metrics.step import batches_per_step, data_wait_fraction
from advisor.models.state import State
from profiler.schema import LoaderFact, Place

SMALL_FILES = {
    loader: LoaderFact(id=1, num_workers=1, dataset="Pieces", place=Place(file="train.py", line=9)),
    files_per_sample: 64.0,
    batch_time: 0.036,
    worker_cpu_share: 0.95,
    step_time_without_wait: 0.005,
    data_wait_fraction: 0.8,
    batches_per_step: 1.0,
    compute_threads: 1.0,
    cores_available: 1,
    cores_per_rank: 2.0,
}
BEHIND = {**SMALL_FILES, workers_are_behind: True}


def without(metric):
    return given({key: value for key, value in SMALL_FILES.items() if key is not metric})


CASES = [
    Fires(
        "64 files per sample, and a worker on every core",
        given(SMALL_FILES),
        code=("mmap_mode", "samples.npy"),
        note="Pieces opens 64 files per sample",
        state=State(phases={"forward": 0.003}, supply=0.03),
        removed=(0.167, 0.533, 0.875),
    ),
    Fires("files per sample just above the limit", given({**SMALL_FILES, files_per_sample: 8.1})),
    DoesNotFire("files per sample just below the limit", given({**SMALL_FILES, files_per_sample: 7.9})),
    Fires("the gain is just above the limit: 0.53 of the data wait", given({**SMALL_FILES, data_wait_fraction: 0.094})),
    DoesNotFire("the gain is just below the limit", given({**SMALL_FILES, data_wait_fraction: 0.093})),
    Fires(
        "workers set the pace: all of the data wait is just above the limit",
        given({**BEHIND, data_wait_fraction: 0.051}),
    ),
    DoesNotFire(
        "workers set the pace: all of the data wait is just below the limit",
        given({**BEHIND, data_wait_fraction: 0.049}),
    ),
    DoesNotFire("there are cores for more workers", given({**SMALL_FILES, cores_available: 7, cores_per_rank: 8.0})),
    DoesNotFire("no workers", given({**SMALL_FILES, loader: LoaderFact(id=1)})),
    NotMeasured("file opens were not counted", without(files_per_sample)),
    NotMeasured("batch preparation was not timed", without(batch_time)),
    NotMeasured("data wait was not measured", without(data_wait_fraction)),
]
