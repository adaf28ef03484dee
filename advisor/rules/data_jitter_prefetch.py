"""The workers are fast enough on average, but a few slow batches empty the queue.

Batches are delivered in order, so one slow batch delays all later ones, even if they are ready. The queue holds workers
x prefetch_factor batches; it hides a stall only until these are used up.

Wrong when: storage stalls all workers at once, or the few slow batches are at the start of the run. Then find out why
they are slow: one huge file, one long sequence, a network retry.

Source: PyTorch: torch.utils.data, https://docs.pytorch.org/docs/stable/data.html
"""

from dataclasses import replace

from advisor.metrics import Metrics, Threshold, input, step
from advisor.models.effects import remove_wait
from advisor.models.input_pipeline import prefetch_factor
from advisor.rules._workers import PREFETCH, added_memory, gain, set_loader
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure
from advisor.units import count, seconds, share

RULE = Rule("Prefetch more batches", Area.STALLS, Confidence.EMPIRICAL, supersedes=("data-more-workers",))

MIN_WAIT = Threshold(
    0.05, "A smaller wait is not worth the memory: about 20 steps can only confirm a gain of 5 % or more."
)

MIN_RATIO = Threshold(3.0, "If one batch in a hundred takes three times the mean, that is more than the usual spread.")

MIN_HIDDEN = Threshold(
    0.1, "If a longer queue hides less of each stall than this, the slow batches themselves must get faster."
)

# Share of the predicted part of a stall that the longer queue really hides. In a simulation (in order, two workers, 7
# to 400 ms per batch): 0.98 to 1.08 if the workers have a tenth of their time to spare, 0.77 if they have half of that.
# Measured: 0.5 (21.6 to 19.2 ms) to 1.2. At best no waiting is left, because stalls shorter than the 99th percentile
# are hidden completely.
REACHED = (0.5, 1.0)

# The same share, to decide whether to advise it: reached even if the queue hardly recovers between two stalls.
SURE = 0.6


def when(m: Metrics) -> Evidence | None:
    """If the step waits for data although the workers together are faster than the step, one batch in a hundred takes
    three times the mean and longer than the queue lasts, and a longer queue should save at least 5 % of the step,
    """
    workers = m[input.loader].num_workers
    if not workers:
        return None
    wait, mean_time = measure(m, step.data_wait_fraction, ">=", MIN_WAIT), m[input.batch_time]
    reason = evidence(wait, measure(m, input.batch_time_p99, ">", m[MIN_RATIO] * mean_time))
    if not reason or mean_time / workers >= m[input.step_time_without_wait] / m[step.batches_per_step]:
        return None
    prefetch, _, _, hidden_share = _queue(m)
    sure_share = SURE * hidden_share
    if hidden_share < m[MIN_HIDDEN] or gain(m, remove_wait((sure_share, sure_share, sure_share))) < m[MIN_WAIT]:
        return None
    return replace(reason, note=f"{count(workers, 'worker')}, each up to {prefetch} ahead")


def then(m: Metrics, found: Evidence) -> Advice:
    """then prefetch more batches, and make the slow ones faster."""
    loader = m[input.loader]
    prefetch, better_prefetch, queue_seconds, hidden_share = _queue(m)
    changes, intervention = set_loader(m, prefetch_factor=better_prefetch)
    return Advice(
        then=f"Raise prefetch_factor from {prefetch} to {better_prefetch}: a slow batch takes "
        f"{seconds(m[input.batch_time_p99])}, the mean is {seconds(m[input.batch_time])}, and the queue lasts "
        f"{seconds(queue_seconds)}. Find out why single samples are slow.",
        changes=changes,
        basis=f"The longer queue hides {share(hidden_share)} of the longest stalls: the waiting shrinks by half of "
        "that share (cautious), by that share (expected) or to zero (best case: all shorter stalls are hidden "
        "completely).",
        effect=remove_wait((REACHED[0] * hidden_share, REACHED[1] * hidden_share, 1.0)),
        memory=0,
        host_memory=added_memory(m, loader.num_workers, better_prefetch),
        intervention=intervention,
        risk=f"Low: {loader.num_workers * (better_prefetch - prefetch)} more batches wait in the host's memory.",
    )


def _queue(m: Metrics) -> tuple[int, int, float, float]:
    """Return prefetch_factor and a better one, the seconds that the present queue feeds the step while a batch is late,
    and the share of such a stall that the longer queue hides.
    """
    loader, slow_batch_time, pace = (
        m[input.loader],
        m[input.batch_time_p99],
        m[input.step_time_without_wait] / m[step.batches_per_step],
    )
    prefetch = loader.prefetch_factor or PREFETCH
    better_prefetch = max(prefetch, prefetch_factor(slow_batch_time, pace, loader.num_workers))
    queue_seconds, longer_queue_seconds = (
        (loader.num_workers * batches - 1) * pace for batches in (prefetch, better_prefetch)
    )
    return (
        prefetch,
        better_prefetch,
        queue_seconds,
        1 - max(0.0, slow_batch_time - longer_queue_seconds) / (slow_batch_time - queue_seconds)
        if slow_batch_time > queue_seconds
        else 0.0,
    )
