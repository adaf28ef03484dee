"""Helpers for rules about data loading: the gain of faster batches, the best number of workers, the code to copy."""

import math
from dataclasses import replace

from advisor.metrics import Metrics, Threshold, host, input, step
from advisor.models.input_pipeline import FEW_TENSORS, Workers, contention, transfer_time
from advisor.models.state import Effect, Scenario, State, removed
from advisor.rules._spelling import spelling
from advisor.rules.base import Change, Intervention, Safety, python
from profiler.schema import LoaderFact

MIN_WAIT = Threshold(0.05, "About 20 steps can confirm a gain of 5 % or more; a smaller wait cannot give that gain.")

# torch's own default.
PREFETCH = 2

# Factors for the modeled transfer of a batch from another process: in a healthy loop, the measured factor was three
# (1.5 ms for 55 kB on two cores); at best the transfer is hidden.
HAND_OVER = (6.0, 2.0, 0.0)

# Private memory of a forked worker, in bytes: measured 11 MB after 20 batches, and it grows with every Python object
# that the data set touches. A spawned worker imports torch again: measured 154 MB.
FORKED_WORKER = 50_000_000
SPAWNED_WORKER = 160_000_000

SHARDED = """\
import itertools

import torch

# in the data set: each worker yields its own part
def __iter__(self):
    info = torch.utils.data.get_worker_info()
    first, of = (info.id, info.num_workers) if info else (0, 1)
    yield from itertools.islice(self.samples(), first, None, of)  # samples(): the previous __iter__
"""


def gain(m: Metrics, effect: Effect) -> float:
    """Return the share of the step (0 to 1) that a change to batch preparation is expected to save.

    Waiting for a batch to be prepared is modeled as serial with the rest of the step, unless the workers are behind
    and set the step's pace. The judge uses the same model.
    """
    wait, unprepared_wait = m[step.data_wait_fraction], m.get(input.wait_without_preparing)
    overhead = min(wait, unprepared_wait / m[step.step_time_mean]) if unprepared_wait else 0.0
    load, supply = (0.0, 1.0) if m[input.workers_are_behind] else (wait - overhead, 0.0)
    state = State(phases={"other": 1.0 - wait + overhead}, load=load, supply=supply)
    return removed(state, effect(state, Scenario.EXPECTED))


def right_workers(m: Metrics, scenario: Scenario = Scenario.EXPECTED) -> Workers:
    """Return the model of DataLoader workers for this run, at the CPU contention of the scenario."""
    workers = Workers(
        batch_time=m[input.batch_time],
        worker_cpu_share=m[input.worker_cpu_share],
        cores=m[host.cores_available],
        host_cores=max(1, math.floor(m[host.cores_per_rank])),
        batches=m[step.batches_per_step],
        compute_threads=m[input.compute_threads],
    )
    return replace(
        workers,
        contention=scenario.of(
            contention(
                workers.number(m[input.step_time_without_wait]), m[host.cores_per_rank], m[input.worker_cpu_share]
            )
        ),
    )


def hand_over(m: Metrics) -> float:
    """Return the seconds to transfer one batch from a worker process.

    A small number of tensors is assumed if they were not counted.
    """
    tensors = m.get(input.batch_tensors)
    return transfer_time(m[input.batch_bytes], FEW_TENSORS if tensors is None else tensors)


def right_number(m: Metrics) -> int:
    """Return W*, the number of workers that keeps up with the step, within the available cores."""
    return right_workers(m).number(m[input.step_time_without_wait])


def time_with_workers(m: Metrics, handing: float = 0.0) -> float:
    """Return the step's seconds with W* workers, if transferring batches adds `handing` seconds to it."""
    compute = m[input.step_time_without_wait] + handing + (m.get(input.wait_without_preparing) or 0.0)
    return max(compute, right_workers(m).supply(compute))


def workers_effect(m: Metrics) -> Effect:
    """Return the effect of using W* workers.

    The step no longer waits for a batch to be prepared, except as far as W* workers cannot keep up.
    """
    workers = {scenario: right_workers(m, scenario) for scenario in Scenario}
    hand_over_seconds = {scenario: added_hand_over(m, scenario) for scenario in Scenario}

    def effect(state: State, scenario: Scenario) -> State:
        supplied_state = replace(state, load=0.0, supply=0.0, workers=workers[scenario])
        return supplied_state.longer("loader_overhead", hand_over_seconds[scenario])

    return effect


def added_hand_over(m: Metrics, scenario: Scenario = Scenario.EXPECTED) -> float:
    """Return the seconds per step that transferring batches would add; 0 if the loader has workers."""
    return 0.0 if m[input.loader].num_workers else m[step.batches_per_step] * hand_over(m) * scenario.of(HAND_OVER)


def added_memory(m: Metrics, workers: int, prefetch: int | None = None) -> int:
    """Return the bytes that these workers and their prefetched batches add to the present use of host memory."""
    loader = m[input.loader]
    worker_bytes, old_prefetch = FORKED_WORKER if loader.forks else SPAWNED_WORKER, loader.prefetch_factor or PREFETCH
    batches = workers * (prefetch or old_prefetch) - loader.num_workers * old_prefetch
    return (workers - loader.num_workers) * worker_bytes + batches * m[input.batch_bytes]


def loader_intervention(fact: LoaderFact, **settings: object) -> Intervention | None:
    """Return the intervention that sets these arguments from outside.

    None if the loader's construction was not seen. None also for a new number of workers on an
    `IterableDataset`, which would have to be sharded differently.
    """
    if fact.place is None or (fact.iterable and "num_workers" in settings):
        return None
    return Intervention(
        name="loader", settings={"file": fact.place.file, "line": fact.place.line, **settings}, safety=Safety.EXACT
    )


def set_loader(m: Metrics, **arguments: int) -> tuple[tuple[Change, ...], Intervention | None]:
    """Return the changes that set these arguments of the loader, and the intervention that does it from outside.

    More workers of an `IterableDataset` need sharding: without it every worker yields every sample.
    """
    loader, changes = m[input.loader], spelling(m).loader(**arguments)
    if loader.iterable and arguments.get("num_workers", 0) > loader.num_workers:
        changes = (*changes, python(SHARDED))
    return changes, loader_intervention(loader, **arguments)


def same_samples(fact: LoaderFact) -> str:
    """Describe how moving batch preparation to other processes affects the order of samples."""
    return "the same samples in another order" if fact.iterable else "the same samples in the same order"
