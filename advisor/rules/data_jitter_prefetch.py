"""The workers are fast enough on average, but a few slow batches empty the queue.

Batches are delivered in order, so one slow batch delays all later ones, even if they are ready. The queue holds workers
x prefetch_factor batches; it hides a stall only until these are used up.

Wrong when: storage stalls all workers at once, or the few slow batches are at the start of the run. Then find out why
they are slow: one huge file, one long sequence, a network retry.

Source: PyTorch: torch.utils.data, https://docs.pytorch.org/docs/stable/data.html
"""

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.input import loader, t_g, t_w, t_w_p99
from advisor.metrics.step import batches_per_step, data_wait_fraction
from advisor.models.effects import remove_wait
from advisor.models.input_pipeline import prefetch_factor
from advisor.rules._spelling import spelling
from advisor.rules._workers import PREFETCH, gain, loader_intervention, workers_memory
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

# Of what the longer queue should hide of a stall, what it does. The queue in a simulation (in order, two workers, 7 to
# 400 ms a batch): 0.98 to 1.08 while the workers have a tenth of their time to spare, 0.77 where they have half of
# that; measured, 0.5 (21.6 to 19.2 ms) to 1.2. At best all waiting goes: stalls shorter than the 99th percentile are
# hidden whole.
REACHED = (0.5, 1.0)

# The same for whether to advise it: a gain that is there even where the queue hardly recovers between two stalls.
SURE = 0.6


def when(m: Metrics) -> Evidence | None:
    """If the step waits for data although the workers together are faster than the step, one batch in a hundred takes
    three times the mean and longer than the queue lasts, and a longer queue should save at least 5 % of the step,
    """
    fact = m[loader]
    if not fact.num_workers:
        return None
    wait, mean, slow = m[data_wait_fraction], m[t_w], m[t_w_p99]
    if wait < m[MIN_WAIT] or slow <= m[MIN_RATIO] * mean or mean / fact.num_workers >= _pace(m):
        return None
    hidden = SURE * _hidden(m)
    if _hidden(m) < m[MIN_HIDDEN] or gain(m, remove_wait((hidden, hidden, hidden))) < m[MIN_WAIT]:
        return None
    facts = measure(m, data_wait_fraction, ">=", MIN_WAIT), measure(m, t_w_p99, ">", m[MIN_RATIO] * mean)
    return evidence(*facts, note=f"{count(fact.num_workers, 'worker')}, each up to {_prefetch(m)} ahead")


def then(m: Metrics, found: Evidence) -> Advice:
    """then prefetch more batches, and make the slow ones faster."""
    fact, number = m[loader], _better_prefetch(m)
    added = fact.num_workers * (number - _prefetch(m))
    return Advice(
        then=f"Raise prefetch_factor from {_prefetch(m)} to {number}: a slow batch takes {seconds(m[t_w_p99])}, "
        f"the mean is {seconds(m[t_w])}, and the queue lasts {seconds(_lasts(m, _prefetch(m)))}. Find out why "
        "single samples are slow.",
        changes=spelling(m).loader(prefetch_factor=number),
        basis=f"The longer queue hides {share(_hidden(m))} of the longest stalls: the waiting shrinks by half of that "
        "share (cautious), by that share (expected) or to zero (best case: all shorter stalls are hidden completely).",
        effect=remove_wait((REACHED[0] * _hidden(m), REACHED[1] * _hidden(m), 1.0)),
        memory=0,
        host_memory=workers_memory(m, fact.num_workers, number) - workers_memory(m, fact.num_workers, _prefetch(m)),
        intervention=loader_intervention(fact, prefetch_factor=number),
        risk=f"Low: {added} more batches wait in the host's memory.",
    )


def _pace(m: Metrics) -> float:
    """Return the seconds in which the step consumes one batch."""
    return m[t_g] / m[batches_per_step]


def _prefetch(m: Metrics) -> int:
    return m[loader].prefetch_factor or PREFETCH


def _better_prefetch(m: Metrics) -> int:
    return max(_prefetch(m), prefetch_factor(m[t_w_p99], _pace(m), m[loader].num_workers))


def _lasts(m: Metrics, prefetch: int) -> float:
    """Return the seconds a full queue feeds the step while one of its batches is late."""
    return (m[loader].num_workers * prefetch - 1) * _pace(m)


def _hidden(m: Metrics) -> float:
    """Return the share (0 to 1) of a stall that the longer queue hides."""
    now = m[t_w_p99] - _lasts(m, _prefetch(m))
    better = max(0.0, m[t_w_p99] - _lasts(m, _better_prefetch(m)))
    return 1 - better / now if now > 0 else 0.0
