"""Data loading: the main training loader of the primary rank, its workers and its queue."""

from bisect import bisect_right
from statistics import median

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.between import epoch_start_share
from advisor.metrics.host import cores_per_rank, local_ranks, process_cpu
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import batches_per_step, data_wait_fraction, steady_steps, steady_window, step_time_mean
from advisor.metrics.weighted import column_mean, measured, quantile_of_run, weighted_mean
from profiler.schema import TAG_EPOCH_START, TAG_FIRST, Batch, LoaderFact, Step

BEHIND = 0.8
"""Share of time that workers are busy from which they limit the step.

With a fifth of their time to spare they keep up.
"""

WAITED = 0.05
"""Share of the step in data wait from which workers count as behind.

Gains of 5 % are the least that about 20 steps can confirm.
"""

MOSTLY_EMPTY = 0.5
"""Share of fetches with an empty queue from which workers count as behind if batches were not timed."""

_UNTIMED = (
    "Batch preparation was not timed",
    "Record from the program's start, so that its workers are observed; only a DataLoader's batches are timed.",
)


@metric(None)
def loader(m: Metrics) -> LoaderFact:
    """The DataLoader used for training; if there are several, the one with the most batches."""
    loaders = [fact for fact in m[primary_rank].loaders if fact.training is not False]
    if not loaders:
        raise Missing(
            "No DataLoader was seen",
            "Nothing to do, if the program loads data without a DataLoader; otherwise record from its start.",
        )
    batch_counts = {fact.id: 0 for fact in loaders}
    for batch in m[primary_rank].batches:
        if batch.loader in batch_counts:
            batch_counts[batch.loader] += batch.count
    return max(loaders, key=lambda fact: (fact.training is True, batch_counts[fact.id]))


def batch_size(m: Metrics) -> int:
    """Return the samples per batch of the main loader.

    Raises:
        Missing: the program makes the batches, not the loader.
    """
    remedy = "Let the DataLoader create the batches: batch_size=N."
    return known(m[loader].batch_size or None, "The loader's batch size is unknown", remedy)


@metric("count", "DataLoaders created on the same line")
def loaders_made(m: Metrics) -> int:
    """Number of DataLoaders created on the same line of code as the main one.

    If it is above 1, the program creates the loader repeatedly, perhaps in every epoch.
    """
    main = m[loader]
    return sum(
        fact is main or (main.place is not None and fact.place == main.place and fact.training is not False)
        for fact in m[primary_rank].loaders
    )


@metric("s", "time to prepare a batch")
def batch_time(m: Metrics) -> float:
    """Mean seconds that one worker (or, without workers, the training process) needs to prepare a batch."""
    return _per_batch(m, "duration")


@metric("s", "time to prepare a slow batch (99th percentile)")
def batch_time_p99(m: Metrics) -> float:
    """Time to prepare a batch, 99th percentile over all workers, in seconds."""
    sketches = [sketch for sketch in m[primary_rank].sketches if sketch.quantity == "batch"]
    return quantile_of_run(measured(_batches(m), "duration"), sketches, 0.99)


@metric("1", "share of collation in batch preparation")
def collate_share(m: Metrics) -> float:
    """Share of `batch_time` (the time to prepare a batch) spent on collation."""
    return _per_batch(m, "collate") / m[batch_time]


@metric("1", "CPU use during batch preparation")
def worker_cpu_share(m: Metrics) -> float:
    """Share of `batch_time` (the time to prepare a batch) in which the worker ran or waited for a core.

    Near 1, a worker computes; near 0, it waits for storage or sleeps.
    """
    return _per_batch(m, "cpu") / m[batch_time]


@metric("count", "cores the workers could use")
def worker_demand(m: Metrics) -> float:
    """Cores that the workers would use if all of them prepared batches at the same time."""
    return m[loader].num_workers * m[worker_cpu_share]


@metric("count", "cores used by the training process itself")
def compute_threads(m: Metrics) -> float:
    """Cores that the training process uses while it neither prepares nor waits for batches."""
    core_seconds = m[process_cpu] / m[local_ranks] * m[step_time_mean]
    if not m[loader].num_workers:
        core_seconds -= m[batches_per_step] * m[batch_time] * m[worker_cpu_share]
    if m[step_time_without_wait] <= 0:
        raise Missing("The steps only wait for data", "Let the run train on its batches.")
    return min(max(core_seconds / m[step_time_without_wait], 0.0), m[cores_per_rank])


@metric("count", "files opened per sample")
def files_per_sample(m: Metrics) -> float:
    """Number of files opened per sample."""
    batches = [batch for batch in _batches(m) if batch.files is not None]
    samples = sum(batch.count * batch.samples for batch in batches)
    if not samples and not m[loader].num_workers:
        raise Missing(
            "Opened files are counted in worker processes, and the loader has none",
            "Record a run with num_workers=1. They are not counted in the training process, because that could not be "
            "turned off again.",
        )
    if not samples:
        raise Missing("Opened files were not counted", _UNTIMED[1])
    return sum(batch.count * (batch.files or 0.0) for batch in batches) / samples


@metric("s", "step time without waiting for data")
def step_time_without_wait(m: Metrics) -> float:
    """Seconds that the step would take if batches were always ready: step time minus data wait."""
    return m[step_time_mean] * (1.0 - m[data_wait_fraction])


@metric("s", "wait for data without preparing batches")
def wait_without_preparing(m: Metrics) -> float:
    """Median seconds for which a step without workers waits for data while its batch is not being prepared.

    Mostly this is a sampler, which draws the indices of a batch in the training process even with workers. The mean
    would include time for which another program has the core.
    """
    if m[loader].num_workers:
        return 0.0
    steps = [step for step in m[steady_steps] if step.count == 1 == step.batches and step.data_wait is not None]
    starts = [step.start for step in steps]
    waits = []
    for batch in _batches(m):
        step = steps[index] if (index := bisect_right(starts, batch.start) - 1) >= 0 else None
        if step and batch.count == 1 and batch.start < step.start + step.duration:
            waits.append((step.data_wait or 0.0) - batch.duration)
    return max(0.0, median(known(waits or None, *_UNTIMED)))


@metric("count", "ready batches in the queue")
def queue_depth(m: Metrics) -> float:
    """Mean number of ready batches at the moment one is requested."""
    depth = column_mean(m[steady_steps], "queue_depth")
    return known(depth, "No queue of batches was observed", "Nothing to do: without workers there is no queue.")


@metric("1", "fetches that found no batch ready")
def queue_empty_fraction(m: Metrics) -> float:
    """Share of fetches that found no batch ready; 1 without workers."""
    steps = [step for step in m[steady_steps] if step.fetches_empty is not None]
    fetches = sum(step.count * step.batches for step in steps)
    if not fetches:
        raise Missing("Fetches were not observed", "Feed the loop from a torch.utils.data.DataLoader.")
    return sum(step.count * (step.fetches_empty or 0.0) for step in steps) / fetches


@metric(None)
def workers_are_behind(m: Metrics) -> bool:
    """Whether the workers set the pace of the step.

    They do if the step waits for data for at least 5 % of its time while the workers are busy for at least 80 % of the
    time. How many fetches find the queue empty does not matter: N equally fast workers deliver at the same time, so
    only one fetch in N waits. If batches were not timed, half of the fetches must find the queue empty.
    """
    if not m[loader].num_workers or (m.get(data_wait_fraction) or 0.0) < WAITED:
        return False
    efficiency = m.get(worker_efficiency)
    return (m.get(queue_empty_fraction) or 0.0) >= MOSTLY_EMPTY if efficiency is None else efficiency >= BEHIND


@metric("1", "share of time the workers are busy")
def worker_efficiency(m: Metrics) -> float:
    """Share of the step time in which the workers prepare batches.

    Near 1, they cannot keep up; near 0, most of them are not needed. It is the time to prepare a step's batches,
    divided by the step time and the number of workers. Evaluations and epoch starts are excluded, because there may be
    no workers then.
    """
    remedy = "Nothing to do: the training process prepares the batches itself."
    workers = known(m[loader].num_workers or None, "The loader has no workers", remedy)
    return m[batch_time] * m[batches_per_step] / (workers * m[step_time_mean])


@metric("B", "size of a batch")
def batch_bytes(m: Metrics) -> int:
    """Total bytes of a batch's tensors."""
    remedy = "Let the run reach the loader's second batch."
    return known(m[loader].batch_bytes, "The size of a batch was not observed", remedy)


@metric("count", "tensors in a batch")
def batch_tensors(m: Metrics) -> int:
    """Number of tensors in a batch; a worker transfers each of them separately."""
    remedy = "Record again, at least to the loader's second batch."
    return known(m[loader].batch_tensors, "The tensors of a batch were not counted", remedy)


@metric("s", "time to start an epoch")
def epoch_start_seconds(m: Metrics) -> float:
    """Mean stall in seconds at the start of an epoch: iterator, start of workers, first batch."""
    return weighted_mean(measured(_epoch_starts(m, "Record a run that includes one."), "epoch_start"))


@metric("1", "share of the run starting later epochs")
def epoch_restart_share(m: Metrics) -> float:
    """Share of the run that starting the second and later epochs takes; persistent workers would save most of it."""
    starts = _epoch_starts(m, "Record a run of two epochs or more.")
    first = starts[0] if starts[0].tags & TAG_FIRST else None
    total = sum(step.count * (step.epoch_start or 0.0) for step in starts)
    first_seconds = 0.0 if first is None else (first.epoch_start or 0.0)
    return m[epoch_start_share] * (1.0 - first_seconds / total) if total else 0.0


def _epoch_starts(m: Metrics, remedy: str) -> list[Step]:
    starts = [step for step in m[primary_rank].steps if step.tags & TAG_EPOCH_START and step.epoch_start is not None]
    return known(starts or None, "No start of an epoch was seen", remedy)


def _batches(m: Metrics) -> list[Batch]:
    """Return the main loader's batches in the steady part of the run; all of them if that has none."""
    own_batches = [batch for batch in m[primary_rank].batches if batch.loader == m[loader].id]
    batches = known(own_batches or None, *_UNTIMED)
    start, end = m[steady_window]
    return [batch for batch in batches if start <= batch.start < end] or batches


def _per_batch(m: Metrics, name: str) -> float:
    return weighted_mean(measured(_batches(m), name))
