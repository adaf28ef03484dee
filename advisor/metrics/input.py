"""How batches are made: the main training loader of the primary rank, its workers, its queue."""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.between import epoch_start_share
from advisor.metrics.host import cores_per_rank, local_ranks, process_cpu
from advisor.metrics.quantiles import quantile
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import batches_per_step, data_wait_fraction, steady_steps, steady_window, step_time_mean
from profiler.schema import TAG_EPOCH_START, TAG_FIRST, Batch, LoaderFact
from profiler.sketch import Quantiles

BEHIND = 0.5
"""Share of fetches that find the queue empty from which the workers' rate is the limit."""

_UNTIMED = Missing(
    "The making of batches was not timed",
    "Record from the program's start, so that workers start under it; only a DataLoader's batches are timed.",
)


@metric(None)
def loader(m: Metrics) -> LoaderFact:
    """The DataLoader that is trained on: of several, the one that made the most batches."""
    training = [fact for fact in m[primary_rank].loaders if fact.training is not False]
    if not training:
        raise Missing(
            "No DataLoader was seen", "Nothing, if the program loads data otherwise; else record from its start."
        )
    made = {fact.id: 0 for fact in training}
    for batch in m[primary_rank].batches:
        if batch.loader in made:
            made[batch.loader] += batch.count
    return max(training, key=lambda fact: (fact.training is True, made[fact.id]))


@metric("count", "DataLoaders made in one place")
def loaders_made(m: Metrics) -> int:
    """DataLoaders that were made in the main one's place: above 1, the program makes them anew, every epoch perhaps."""
    main = m[loader]
    return sum(
        fact is main or (main.place is not None and fact.place == main.place and fact.training is not False)
        for fact in m[primary_rank].loaders
    )


@metric("s", "time to make a batch")
def t_w(m: Metrics) -> float:
    """Mean seconds one worker (or, without workers, the training process) needs to make a batch."""
    return _per_batch(m, "duration")


@metric("s", "time to make a slow batch (99th percentile)")
def t_w_p99(m: Metrics) -> float:
    """99 of 100 batches are made within this; over all workers."""
    batches = _batches(m)
    sketches = [sketch for sketch in m[primary_rank].sketches if sketch.quantity == "batch"]
    if any(batch.count > 1 for batch in batches):
        merged = Quantiles()
        for sketch in sketches:
            merged.merge(Quantiles.from_sketch(sketch))
        value = merged.quantile(0.99)
        if value is not None:
            return value
    return quantile([(batch.duration, batch.count) for batch in batches], 0.99)


@metric("1", "share of collating in making a batch")
def collate_share(m: Metrics) -> float:
    """Share of t_w in putting samples together to a batch."""
    return _per_batch(m, "collate") / m[t_w]


@metric("1", "CPU use while a batch is made")
def u_w(m: Metrics) -> float:
    """Seconds in which it ran or waited for a core, per second of t_w: near 1 a worker computes, near 0 it waits for
    storage or sleeps."""
    return _per_batch(m, "cpu") / m[t_w]


@metric("count", "cores the workers could fill")
def worker_demand(m: Metrics) -> float:
    """Cores the workers would keep busy if all of them made batches at once."""
    return m[loader].num_workers * m[u_w]


@metric("count", "cores the training itself fills")
def compute_threads(m: Metrics) -> float:
    """Cores the training process keeps busy while it is not making or waiting for batches."""
    used = m[process_cpu] / m[local_ranks] * m[step_time_mean]
    if not m[loader].num_workers:
        used -= m[batches_per_step] * m[t_w] * m[u_w]
    if m[t_g] <= 0:
        raise Missing("The steps do nothing but wait for data", "Let the run train on its batches.")
    return min(max(used / m[t_g], 0.0), m[cores_per_rank])


@metric("count", "files opened for a sample")
def files_per_sample(m: Metrics) -> float:
    """Files opened for a sample."""
    counted = [batch for batch in _batches(m) if batch.files is not None]
    samples = sum(batch.count * batch.samples for batch in counted)
    if not samples and not m[loader].num_workers:
        raise Missing(
            "Opened files are counted in worker processes, and the loader has none",
            "Record a run with num_workers=1: in the training process a count could not be taken out again.",
        )
    if not samples:
        raise Missing("Opened files were not counted", _UNTIMED.remedy)
    return sum(batch.count * (batch.files or 0.0) for batch in counted) / samples


@metric("s", "step time without waiting for data")
def t_g(m: Metrics) -> float:
    """Seconds the step would take if its batches were always there: step time less data wait."""
    return m[step_time_mean] * (1.0 - m[data_wait_fraction])


@metric("count", "ready batches in the queue")
def queue_depth(m: Metrics) -> float:
    """Mean number of ready batches when one is asked for."""
    measured = [(step.queue_depth, step.count) for step in m[steady_steps] if step.queue_depth is not None]
    if not measured:
        raise Missing("No queue of batches was seen", "Nothing: without workers there is none.")
    return sum(depth * count for depth, count in measured) / sum(count for _, count in measured)


@metric("1", "fetches that found no batch ready")
def queue_empty_fraction(m: Metrics) -> float:
    """Share of fetches that found no batch ready; all of them without workers."""
    measured = [step for step in m[steady_steps] if step.fetches_empty is not None]
    fetches = sum(step.count * step.batches for step in measured)
    if not fetches:
        raise Missing("Fetches were not observed", "Feed the loop from a torch.utils.data.DataLoader.")
    return sum(step.count * (step.fetches_empty or 0.0) for step in measured) / fetches


@metric(None)
def workers_are_behind(m: Metrics) -> bool:
    """Workers set the pace of the step: half of the fetches or more find the queue empty. With fewer, workers keep up
    on average and only jitter. Not known to be so is not so."""
    return m[loader].num_workers > 0 and (m.get(queue_empty_fraction) or 0.0) >= BEHIND


@metric("1", "share of time the workers are busy")
def worker_efficiency(m: Metrics) -> float:
    """Share of the steps in which the workers make batches: near 1 they cannot keep up, near 0 most are surplus.

    What a step's batches take to make, over its time and the workers; evaluations and epoch starts, in which there may
    be no workers, are no part of it.
    """
    workers = m[loader].num_workers
    if not workers:
        raise Missing("The loader has no workers", "Nothing: the training process makes the batches itself.")
    return m[t_w] * m[batches_per_step] / (workers * m[step_time_mean])


@metric("B", "size of a batch")
def batch_bytes(m: Metrics) -> int:
    """Size of a batch's tensors."""
    size = m[loader].batch_bytes
    if size is None:
        raise Missing("The size of a batch was not seen", "Let the run reach the loader's second batch.")
    return size


@metric("count", "tensors in a batch")
def batch_tensors(m: Metrics) -> int:
    """Tensors that a batch is made of: a worker hands each of them over by itself."""
    number = m[loader].batch_tensors
    if number is None:
        raise Missing("The tensors of a batch were not counted", "Record anew, to the loader's second batch.")
    return number


@metric("s", "time to start an epoch")
def epoch_start_seconds(m: Metrics) -> float:
    """Mean stall at the start of an epoch: making the iterator, starting workers, the first batch."""
    starts = [s for s in m[primary_rank].steps if s.tags & TAG_EPOCH_START and s.epoch_start is not None]
    if not starts:
        raise Missing("No start of an epoch was seen", "Record a run that includes one.")
    return sum(s.count * (s.epoch_start or 0.0) for s in starts) / sum(s.count for s in starts)


@metric("1", "share of the run in starting later epochs")
def epoch_restart_share(m: Metrics) -> float:
    """Share of the run in starting its second and later epochs: most of it is what persistent workers would save."""
    starts = [s for s in m[primary_rank].steps if s.tags & TAG_EPOCH_START and s.epoch_start is not None]
    if not starts:
        raise Missing("No start of an epoch was seen", "Record a run of two epochs or more.")
    first = starts[0] if starts[0].tags & TAG_FIRST else None
    total = sum(s.count * (s.epoch_start or 0.0) for s in starts)
    once = 0.0 if first is None else (first.epoch_start or 0.0)
    return m[epoch_start_share] * (1.0 - once / total) if total else 0.0


def _batches(m: Metrics) -> list[Batch]:
    """The main loader's, from the steady part of the run; all of them, if it was too short for any."""
    made = m[primary_rank].batches
    batches = [batch for batch in made if batch.loader == m[loader].id]
    if not batches:
        raise Missing(_UNTIMED.what, _UNTIMED.remedy)
    start, end = m[steady_window]
    return [batch for batch in batches if start <= batch.start < end] or batches


def _per_batch(m: Metrics, name: str) -> float:
    batches = _batches(m)
    return float(sum(batch.count * getattr(batch, name) for batch in batches) / sum(batch.count for batch in batches))
