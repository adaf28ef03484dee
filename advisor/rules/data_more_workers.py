"""The DataLoader workers cannot keep up with the step.

Together they deliver one batch every batch_time / workers seconds. If that is longer than the step, every worker is
busy all the time, and loading sets the pace of the step. Still, few fetches may find the queue empty: N equally fast
workers deliver N batches at the same time, so only one fetch in N waits.

Wrong when: the workers wait for storage or a server that is already at its limit. More workers then only share that
limit; make the data smaller or move it closer. To check, compare the time per batch with one worker and with several.

Source: Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021
Source: PyTorch: torch.utils.data, https://docs.pytorch.org/docs/stable/data.html
"""

from advisor.metrics import Metrics, Threshold, host, input, step
from advisor.rules._workers import (
    added_memory,
    right_number,
    same_samples,
    set_loader,
    time_with_workers,
    workers_effect,
)
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure
from advisor.rules.data_workers_zero import MIN_GAIN, MIN_WAIT
from advisor.units import seconds, share

RULE = Rule("Raise the number of DataLoader workers", Area.STALLS, Confidence.PHASE_REMOVAL)

MIN_EFFICIENCY = Threshold(0.8, "Workers that are idle for a fifth of the time are not the bottleneck.")


def when(m: Metrics) -> Evidence | None:
    """If the step spends at least 5 % of its time waiting for data, the workers are busy for at least 80 % of the
    time, and there are cores for more of them,
    """
    loader = m[input.loader]
    if not loader.num_workers:
        return None
    reason = evidence(
        measure(m, step.data_wait_fraction, ">=", MIN_WAIT),
        measure(m, input.worker_efficiency, ">=", MIN_EFFICIENCY),
        note=f"{loader.dataset} is read with num_workers={loader.num_workers}",
    )
    if not reason or right_number(m) <= loader.num_workers:
        return None
    return None if time_with_workers(m) > (1 - m[MIN_GAIN]) * m[step.step_time_mean] else reason


def then(m: Metrics, found: Evidence) -> Advice:
    """then raise num_workers until the workers keep up with the step or all cores are used."""
    loader, workers = m[input.loader], right_number(m)
    changes, intervention = set_loader(m, num_workers=workers, persistent_workers=True)
    return Advice(
        then=f"Raise num_workers from {loader.num_workers} to {workers}: one worker needs "
        f"{seconds(m[input.batch_time])} per batch and the step waits {share(m[step.data_wait_fraction])} of its time. "
        f"This alone makes a step about {seconds(time_with_workers(m))}.",
        changes=changes,
        basis=f"The slower of two: the step without waiting, and {workers} parallel workers slowed down by a factor of "
        f"1, 1.15 or 1.5. Cores left for workers: {m[host.cores_available]}.",
        effect=workers_effect(m),
        memory=0,
        host_memory=added_memory(m, workers),
        intervention=intervention,
        risk=f"Low: {same_samples(loader)}; each worker takes memory on the host.",
    )
