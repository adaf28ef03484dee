"""There are more DataLoader workers than cores, and they compete for the cores.

Workers that compute take turns with each other and with the training process. Every switch evicts cached data, and the
thread that launches the GPU's work has to wait. Fewer workers would deliver the same batches.

Wrong when: the queue is full only because the run is short or the data set happens to be cached; a first epoch from
cold storage may need all workers.

Source: PyTorch: torch.utils.data, https://docs.pytorch.org/docs/stable/data.html
"""

from advisor.metrics import Metrics, Threshold, gpu, host, input
from advisor.models.effects import remove
from advisor.rules._workers import added_memory, right_number, set_loader
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure
from profiler.schema import PHASES

RULE = Rule("Use fewer DataLoader workers", Area.STALLS, Confidence.EMPIRICAL, cap=Severity.SUGGEST)

MIN_SATURATION = Threshold(0.95, "Below this, a core is usually idle, so no process waits for one.")

MAX_EMPTY = Threshold(0.01, "One empty fetch in a hundred is noise; with more, the workers may be needed.")

# Share of the CPU phases that is saved. Measured on 2 cores with 16 workers: 22.8 to 17.8 ms, 22 %.
REMOVED = (0.0, 0.05, 0.25)

# Phases that run on the CPU if a GPU computes the others.
HOST_PHASES = ("loader_overhead", "other")


def when(m: Metrics) -> Evidence | None:
    """If there are more workers than cores, they need more cores than are left for them, the CPU is saturated, at most
    1 % of fetches find the queue empty, and fewer workers could do the same work,
    """
    loader = m[input.loader]
    if loader.num_workers <= m[host.cores_per_rank]:
        return None
    reason = evidence(
        measure(m, input.worker_demand, ">", m[host.cores_available]),
        measure(m, host.cpu_saturation, ">", MIN_SATURATION),
        measure(m, input.queue_empty_fraction, "<=", MAX_EMPTY),
        note=f"{loader.num_workers} workers on {m[host.cores_per_rank]:g} cores",
    )
    # The queue may be full only because workers leave too few cores for the step: fewer workers would be too slow for
    # it.
    if (
        not reason
        or right_number(m) >= loader.num_workers
        or m[host.worker_cpu] / m[host.local_ranks] > right_number(m)
    ):
        return None
    return reason


def then(m: Metrics, found: Evidence) -> Advice:
    """then lower num_workers to the number that keeps up with the step."""
    loader, workers = m[input.loader], right_number(m)
    changes, intervention = set_loader(m, num_workers=workers)
    return Advice(
        then=f"Lower num_workers from {loader.num_workers} to {workers}: that keeps up with the step and leaves it the "
        "cores.",
        changes=changes,
        basis="0, 5 or 25 % of the time in phases that run on the CPU is saved; with 16 workers on 2 cores it was 22 "
        "% (measured).",
        effect=remove(*(HOST_PHASES if m.get(gpu.device) else PHASES), shares=REMOVED),
        memory=0,
        host_memory=added_memory(m, workers),
        intervention=intervention,
        risk="Low: if fetches start to find the queue empty, add half of the removed workers back.",
    )
