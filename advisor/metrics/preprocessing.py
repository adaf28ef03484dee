"""Regions of the data set that the program has named "preprocess"."""

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.input import loader
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import summed
from profiler.schema import TAG_EPOCH_START

NAME = "preprocess"


@metric("1", "share of preprocessing in batch preparation")
def preprocess_share(m: Metrics) -> float:
    """Share of batch preparation in regions named "preprocess".

    The total is the time of all workers or, without workers, the host's time in `next(loader)`.
    """
    rank = m[primary_rank]
    if m[loader].num_workers:
        regions, workers = rank.worker_regions, {worker.pid for worker in rank.workers}
        total = sum(batch.count * batch.duration for batch in rank.batches if batch.pid in workers)
    else:
        regions, total = rank.regions, summed(rank.steps, "fetch_host") or 0.0
    seconds = sum(region.seconds for region in regions if region.name == NAME)
    if not seconds or not total:
        raise Missing(
            'The data set has no region named "preprocess"',
            'Add `with profiler.region("preprocess"): ...` in its `__getitem__`, around code that uses no random '
            "numbers.",
        )
    return min(1.0, seconds / total)


@metric("count", "epochs begun")
def epochs_begun(m: Metrics) -> int:
    """Number of the loader's epochs whose start was recorded."""
    epochs = sum(step.count for step in m[primary_rank].steps if step.tags & TAG_EPOCH_START)
    return known(epochs or None, "No start of an epoch was seen", "Record a run that includes one.")
