"""The training process prepares its own batches and cannot train meanwhile.

A DataLoader without workers reads, decodes and collates inside `next()`, so loading adds to the time of every step.
Worker processes prepare the next batches during the step, so a step takes only as long as the slower of the two.

Wrong when: the data set cannot be used in another process (it holds a CUDA tensor, an open database handle or a lock),
the whole run is only a few batches long, so that starting workers costs more than they save, or storage is already at
its limit.

Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
Source: Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021
"""

from advisor.metrics import Metrics, Threshold, host, input, step
from advisor.rules._workers import (
    PREFETCH,
    added_hand_over,
    added_memory,
    hand_over,
    right_number,
    same_samples,
    set_loader,
    time_with_workers,
    workers_effect,
)
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure
from advisor.units import count, seconds, share

RULE = Rule(
    "Load the data in worker processes", Area.STALLS, Confidence.PHASE_REMOVAL, supersedes=("data-more-workers",)
)

MIN_WAIT = Threshold(
    0.05, "A smaller wait is not worth a process: about 20 steps can only confirm a gain of 5 % or more."
)

MIN_HAND_OVERS = Threshold(2.0, "Below this, transferring the batch from a worker takes as long as the worker saves.")

MIN_GAIN = Threshold(0.03, "If cores are scarce, the predicted gain may be zero; below this gain there is no advice.")


def when(m: Metrics) -> Evidence | None:
    """If the loader has no workers, the step spends at least 5 % of its time waiting for data, a batch takes at
    least twice as long to prepare as to transfer from another process, and there are cores to prepare it on,
    """
    loader = m[input.loader]
    if loader.num_workers or (loader.batch_device or "cpu").startswith("cuda"):
        return None
    wait = measure(m, step.data_wait_fraction, ">=", MIN_WAIT)
    if not wait.holds:
        return None
    reason = evidence(
        wait,
        measure(m, input.batch_time, ">", m[MIN_HAND_OVERS] * hand_over(m)),
        note=f"{loader.dataset} is read with num_workers=0",
    )
    return reason if reason and time_with_workers(m) <= (1 - m[MIN_GAIN]) * m[step.step_time_mean] else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then prepare the batches in enough worker processes to keep up with the step, within the available cores."""
    loader, workers = m[input.loader], right_number(m)
    changes, intervention = set_loader(m, num_workers=workers, persistent_workers=True, prefetch_factor=PREFETCH)
    cores, warning = m.get(host.cores_allowed), ""
    if cores is not None and workers > cores:
        warning = (
            f" torch warns that {workers} workers exceed the number of cores; these workers mostly wait, so ignore "
            "the warning."
        )
    return Advice(
        then=f"Give the DataLoader {count(workers, 'worker')}: preparing a batch takes "
        f"{seconds(m[input.batch_time])} and the step waits {share(m[step.data_wait_fraction])} of its time "
        f"for it. This alone makes a step about {seconds(time_with_workers(m, added_hand_over(m)))}.{warning}",
        changes=changes,
        basis=f"The slower of two: the step without waiting, and {count(workers, 'worker')} in parallel, slowed down "
        f"by a factor of 1, 1.15 or 1.5. Cores left for workers: {m[host.cores_available]}.",
        effect=workers_effect(m),
        memory=0,
        host_memory=added_memory(m, workers, PREFETCH),
        intervention=intervention,
        risk=f"Low: {same_samples(loader)} in the first epoch; later epochs are shuffled differently because "
        "persistent workers draw fewer seeds. Random augmentation also uses other seeds. A data set that cannot be "
        "forked (open "
        'handles, CUDA) needs multiprocessing_context="spawn" or must open them in the worker.',
    )
