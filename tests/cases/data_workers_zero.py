from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.host import cores_allowed, cores_available, cores_per_rank
from advisor.metrics.input import (
    batch_bytes,
    batch_tensors,
    batch_time,
    compute_threads,
    loader,
    step_time_without_wait,
    worker_cpu_share,
)
from advisor.metrics.step import batches_per_step, data_wait_fraction, step_time_mean
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import LoaderFact, Place

SLEEPY = LoaderFact(id=1, dataset="Photos", batch_size=16, place=Place(file="train.py", line=31))


def run(fact=SLEEPY, make=0.2, step=0.05, cpu=1.0, cores=8, threads=1.0, size=1_000_000, **changed):
    """Return values of a loader that takes `make` s per batch, before a step of `step` s, on `cores` cores."""
    wait = changed.pop("wait", make / (make + step))
    return {
        loader: fact,
        batch_time: make,
        worker_cpu_share: cpu,
        step_time_without_wait: step,
        batch_bytes: size,
        compute_threads: threads,
        batches_per_step: 1.0,
        data_wait_fraction: wait,
        step_time_mean: make + step,
        cores_allowed: float(cores),
        cores_available: max(1, cores - 1),
        cores_per_rank: float(cores),
    }


def without(metric, **changed):
    return given({key: value for key, value in run(**changed).items() if key is not metric})


def tensors(number, make):
    """Return metrics of a batch with almost no bytes."""
    return given({**run(make=make, size=0), batch_tensors: number})


CASES = [
    Fires(
        "data wait is 80 % of the step, on eight cores",
        given(run()),
        code=("num_workers=5,", "persistent_workers=True", "prefetch_factor=2", "# Photos"),
        absent="get_worker_info",
        state=State(phases={"forward": 0.05}, load=0.2),
        removed=(0.76, 0.793, 0.8),
        host_memory=5 * (50_000_000 + 2 * 1_000_000),
        intervention=Intervention(
            name="loader",
            settings={
                "file": "train.py",
                "line": 31,
                "num_workers": 5,
                "persistent_workers": True,
                "prefetch_factor": 2,
            },
            safety=Safety.EXACT,
        ),
    ),
    Fires(
        "few cores: as many workers as free cores, and some data wait is predicted to remain",
        given(run(cores=4)),
        code="num_workers=3,",
        state=State(phases={"forward": 0.05}, load=0.2),
        removed=(0.6, 0.6933, 0.7333),  # .2 x 1.5 / 3 (four busy processes on four cores: expected 1.15)
    ),
    Fires(
        "a sleeping loader needs no cores, so torch's warning about them can be ignored",
        given(run(make=0.087, step=0.018, cpu=0.05, cores=2)),
        code="num_workers=6,",
        then="torch warns that 6 workers exceed the number of cores",
    ),
    Fires(
        "gradients are accumulated over four batches: a step needs four batches",
        given(
            {**run(make=0.05, step=0.2, cpu=0.1), batches_per_step: 4.0, data_wait_fraction: 0.5, step_time_mean: 0.4}
        ),
        code="num_workers=2,",
    ),
    Fires(
        "an iterable dataset must split its data among workers",
        given(run(fact=LoaderFact(id=1, iterable=True, place=Place(file="train.py", line=31)))),
        code=("num_workers=5", "get_worker_info"),
        by_hand=True,
    ),
    Fires("data wait just above the limit", given(run(make=0.0054, step=0.1, wait=0.0501)), code="num_workers=2,"),
    DoesNotFire("data wait just below the limit", given(run(make=0.0052, step=0.1, wait=0.0499))),
    DoesNotFire(
        "preparing a batch takes less than two transfers from a worker", given(run(make=0.00099, step=0.001, size=0))
    ),
    Fires(
        "preparing a batch takes longer than two transfers from a worker", given(run(make=0.00101, step=0.001, size=0))
    ),
    DoesNotFire(
        "transferring a large batch takes longer than preparing it", given(run(make=0.06, step=0.05, size=100_000_000))
    ),
    DoesNotFire(
        "torch creates 300 tensors from lists: transferring them takes ten times as long as creating them",
        given({**run(make=0.0048, step=0.007), batch_tensors: 300}),
    ),
    DoesNotFire("preparing a batch of 32 tensors takes less than two transfers", tensors(32, make=0.0111)),
    Fires(
        "preparing a batch of 32 tensors takes longer than two transfers", tensors(32, make=0.0113)
    ),  # 2 x (0.5 + 30 x 0.17 ms)
    Fires(
        "the prediction includes the cost of transferring many tensors",
        tensors(32, make=0.2),
        state=State(phases={"forward": 0.05}, load=0.2),
        removed=(0.6656, 0.7552, 0.8),  # 5.6 ms, six times, twice and not at all
    ),
    DoesNotFire("all cores compute: none is left for a worker", given(run(make=0.006, step=0.1, cores=2, threads=2.0))),
    DoesNotFire("the loader has workers already", given({loader: LoaderFact(id=1, num_workers=1)})),
    DoesNotFire(
        "batches are created on the GPU, which a forked worker cannot use",
        given(run(LoaderFact(id=1, batch_device="cuda:0"))),
    ),
    NotMeasured("batch preparation was not timed", without(batch_time)),
    NotMeasured("the bytes per batch are unknown", without(batch_bytes)),
    NotMeasured("no loader was seen", given({})),
]
