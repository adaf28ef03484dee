"""What rules about DataLoader workers share: the right number of them, what it brings, and the code to copy."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor.metrics.base import Metrics
from advisor.metrics.host import cores_allowed, cores_available, cores_per_rank
from advisor.metrics.input import batch_bytes, batch_tensors, compute_threads, loader, t_g, t_w, u_w
from advisor.metrics.step import batches_per_step
from advisor.models.input_pipeline import FEW_TENSORS, contention, transfer_time
from advisor.models.state import Effect, Scenario, State, Workers
from advisor.rules.base import Change, Intervention, Safety
from profiler.schema import LoaderFact

# torch's own default.
PREFETCH = 2

# Times the modelled hand-over of a batch from another process: a healthy loop was measured at three times (1.5 ms for
# 55 kB on two cores); at best it is hidden.
HAND_OVER = (6.0, 2.0, 0.0)

# Memory of its own that a forked worker ends up with, bytes: measured 11 MB after 20 batches, and it grows with every
# Python object the data set touches. A spawned worker imports torch anew: measured 154 MB.
FORKED_WORKER = 50_000_000
SPAWNED_WORKER = 160_000_000


def right_workers(m: Metrics) -> Workers:
    """Workers as they would work for this run's loader, at the contention that is expected."""
    workers = Workers(
        t_w=m[t_w],
        u_w=m[u_w],
        cores=m[cores_available],
        host_cores=max(1, math.floor(m[cores_per_rank])),
        batches=m[batches_per_step],
        compute_threads=m[compute_threads],
    )
    return replace(workers, contention=_contention(m, workers)[Scenario.EXPECTED.value])


def hand_over(m: Metrics) -> float:
    """Seconds in which a batch is handed over from another process; of few tensors where nobody counted them."""
    number = m.get(batch_tensors)
    return transfer_time(m[batch_bytes], FEW_TENSORS if number is None else number)


def right_number(m: Metrics) -> int:
    """W*: workers that keep up with the step, as far as the cores go."""
    return right_workers(m).number(m[t_g])


def time_with_workers(m: Metrics) -> float:
    """Seconds the step would take with W* workers if handing its batches over cost nothing."""
    return _with_workers(m, m[t_g])


def expected_time(m: Metrics) -> float:
    """Seconds the step is expected to take with W* workers, as `workers_effect` has it."""
    return _with_workers(m, m[t_g] + _hand_over(m) * Scenario.EXPECTED.of(HAND_OVER))


def _with_workers(m: Metrics, compute: float) -> float:
    return max(compute, right_workers(m).supply(compute))


def workers_effect(m: Metrics) -> Effect:
    """The step no longer waits for a batch to be made, only for as long as W* workers cannot keep up."""
    workers = right_workers(m)
    low, expected, high = _contention(m, workers)
    handing = _hand_over(m)

    def effect(state: State, scenario: Scenario) -> State:
        chosen = replace(workers, contention=scenario.of((low, expected, high)))
        supplied = replace(state, load=0.0, supply=0.0, workers=chosen)
        return supplied.longer("loader_overhead", handing * scenario.of(HAND_OVER))

    return effect


def beyond_cores(m: Metrics, number: int) -> str:
    """What torch says of more workers than cores, and what to make of it; nothing for fewer."""
    cores = m.get(cores_allowed)
    if cores is None or number <= cores:
        return ""
    return f" torch warns that {number} workers are more than the cores; these mostly wait, so that is fine."


def workers_memory(m: Metrics, workers: int, prefetch: int = PREFETCH) -> int:
    """Bytes of host memory that so many workers and the batches they hold ready take."""
    own = FORKED_WORKER if m[loader].context in (None, "fork") else SPAWNED_WORKER
    return workers * (own + prefetch * m[batch_bytes])


def loader_intervention(fact: LoaderFact, **settings: object) -> Intervention | None:
    """The same made from outside; None where nobody saw the loader made, or the data set would have to be told to share
    itself out among another number of workers."""
    if fact.place is None or (fact.iterable and "num_workers" in settings):
        return None
    return Intervention(
        name="loader", settings={"file": fact.place.file, "line": fact.place.line, **settings}, safety=Safety.EXACT
    )


def sharding_change(fact: LoaderFact) -> tuple[Change, ...]:
    """For an IterableDataset: without it every worker yields every sample."""
    if not fact.iterable:
        return ()
    code = (
        "import itertools\n\nimport torch\n\n"
        "# in the data set: each worker yields its own part\n"
        "def __iter__(self):\n"
        "    info = torch.utils.data.get_worker_info()\n"
        "    first, of = (info.id, info.num_workers) if info else (0, 1)\n"
        "    yield from itertools.islice(self.samples(), first, None, of)  # samples(): what __iter__ did\n"
    )
    return (Change(language="python", code=code),)


def same_samples(fact: LoaderFact) -> str:
    """What becomes of the samples if other processes make the batches."""
    return "the same samples in another order" if fact.iterable else "the same samples in the same order"


def _hand_over(m: Metrics) -> float:
    """Seconds a step that handing its batches over would add; a loader with workers hands them over already."""
    return 0.0 if m[loader].num_workers else m[batches_per_step] * hand_over(m)


def _contention(m: Metrics, workers: Workers) -> tuple[float, float, float]:
    return contention(workers.number(m[t_g]), m[cores_per_rank], m[u_w])
