"""The trace shows that the step waits for its data.

A trace shows that the GPU is idle while the host is in `next(loader)`, and whether the DataLoader has worker processes.
Without workers, the training process prepares every batch itself. If there are workers, they cannot keep up. A trace
does not contain the time per batch or the number of cores. Record the program with profile-train to get both, and the
number of workers to use.

Wrong when: the traced steps are at the start of an epoch, when no batch is ready yet, or storage is at its limit.

Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
Source: Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021
"""

from math import ceil

from advisor.metrics import Metrics, Threshold, gpu, step, traced
from advisor.models.effects import Triple, remove_wait
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Prepare batches in more worker processes", Area.STALLS, Confidence.HEURISTIC)

MIN_WAIT = Threshold(0.05, "A smaller wait cannot give a gain of 5 %.")

MIN_STEPS = Threshold(2, "A single long wait may be the start of an epoch, so the longest one does not count.")

MIN_KERNELS = Threshold(30, "With fewer kernels, the trace does not contain whole steps (assumption).")

SHORTEST = 1e-9

# Share of the waiting that is saved (assumption): workers hide all of it if there are cores for them; additional
# workers may share a slow disk.
FIRST_WORKERS: Triple = (0.5, 0.85, 1.0)
MORE_WORKERS: Triple = (0.1, 0.5, 0.95)

# Most workers to start with, because a trace does not contain the number of cores.
MOST_WORKERS = 8


def when(m: Metrics) -> Evidence | None:
    """If the trace shows that the GPU waits for batches for at least 5 % of several steps, even without the longest
    wait,
    """
    has_workers, wait, step_count = m[traced.traced_workers], m[step.data_wait_fraction], m[step.steady_step_count]
    waits = sorted(
        ((traced_step.data_wait or 0.0, traced_step.duration) for traced_step in m[step.steady_steps]), reverse=True
    )[1:]
    other_share = sum(wait_seconds for wait_seconds, _ in waits) / max(sum(duration for _, duration in waits), SHORTEST)
    if min(wait, other_share) < m[MIN_WAIT] or step_count < m[MIN_STEPS] or m[gpu.traced_kernels] < m[MIN_KERNELS]:
        return None
    note = "the loader has worker processes" if has_workers else "the training process prepares the batches"
    facts = measure(m, step.data_wait_fraction, ">=", MIN_WAIT), measure(m, step.steady_step_count, ">=", MIN_STEPS)
    return evidence(*facts, note=note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then prepare batches in worker processes or, if there are workers already, use more of them or make a batch
    cheaper.
    """
    wait, has_workers = m[step.data_wait_fraction], m[traced.traced_workers]
    worker_count = min(MOST_WORKERS, 1 + ceil(wait / max(1 - wait, 1 / MOST_WORKERS)))
    if has_workers:
        action = "Raise num_workers, or make a batch cheaper: decode less, collate less, read larger files."
        code = "loader = torch.utils.data.DataLoader(dataset, ..., num_workers=8, prefetch_factor=4)  # more than now\n"
    else:
        action = f"Give the DataLoader worker processes, {worker_count} to begin with."
        code = (
            f"loader = torch.utils.data.DataLoader(dataset, ..., num_workers={worker_count}, "
            "persistent_workers=True, pin_memory=True)\n"
        )
    shares = MORE_WORKERS if has_workers else FIRST_WORKERS
    low, expected, high = (f"{100 * fraction:.0f}" for fraction in shares)
    return Advice(
        then=f"{action} The GPU waits for data {share(wait)} of the step. Record the program with profile-train to see "
        "how long a batch takes and how many workers are needed.",
        changes=(python(code),),
        basis=f"{low}, {expected} or {high} % of the waiting is saved.",
        effect=remove_wait(shares),
        memory=0,
        risk="Low: the same samples. Each worker takes memory on the host.",
    )
