"""The CPU computes with a number of threads that nobody has chosen, and another one is faster.

torch takes as many threads as there are cores, whatever part of them a container may use; torchrun and other launchers
set OMP_NUM_THREADS=1, so that ranks do not get into one another's way. Which number is best depends on the sizes of the
products: with small ones, threads wait for each other longer than they compute. So the largest product of the program
was tried with several, after its end, by its own Python.

Wrong when: other programs share the cores while the training runs, or most of its time goes into other operations than
matrix products. A number that the program sets itself is respected.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.host import cores_allowed, local_ranks
from advisor.metrics.settings import on_cpu
from advisor.metrics.threads import (
    MIN_COMPUTE,
    best_threads,
    compute_fraction,
    thread_demand,
    thread_gain,
    threads,
    threads_from,
)
from advisor.models.effects import divide
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Intervention, Rule, Safety, Source, Tier

MIN_GAIN = Threshold(1.3, "Repeated timings of one product differ by up to a fifth on busy machines (measured).")

COMPUTE = ("forward", "backward", "optimizer")

# Of the gain of the largest product, what all computing has: small products and other operators gain less (assumption).
PASSED_ON = (0.4, 0.8, 1.0)


def when(m: Metrics) -> Evidence | None:
    """If the step computes on the CPU with a number of threads from the environment or by default, and the program's
    largest product was 1.3 times as fast with another number, or all ranks have more threads than there are cores,
    """
    if not m[on_cpu] or m[threads_from] == "program" or m[compute_fraction] < m[MIN_COMPUTE]:
        return None
    gain, demand, cores = m[thread_gain], m[thread_demand], m[cores_allowed]
    facts = []
    if gain >= m[MIN_GAIN]:
        facts.append(Fact(thread_gain, gain, m[MIN_GAIN]))
    if demand > cores and m[best_threads] < m[threads]:
        facts.append(Fact(thread_demand, demand, cores, ">"))
    if not facts:
        return None
    return Evidence((*facts, Fact(best_threads, m[best_threads])), _who(m))


def then(m: Metrics, found: Evidence) -> Advice:
    """then set the number that was fastest."""
    best, now = m[best_threads], m[threads]
    ranks = " in each rank" if m[local_ranks] > 1 else ""
    gain = max(1.0, m[thread_gain])
    low, expected, high = (1 / (1 - part * (1 - 1 / gain)) for part in PASSED_ON)
    return Advice(
        then=f"Compute with {best} thread{'s' if best > 1 else ''}{ranks} instead of {now}.",
        changes=(
            Change(language="shell", code=f"export OMP_NUM_THREADS={best}  # before the program or launcher\n"),
            Change(
                language="python",
                code=f"import torch\n\ntorch.set_num_threads({best})  # first of all; DataLoader workers keep to 1\n",
            ),
        ),
        basis=f"The largest matrix product took 1/{gain:.2f} of its time with {best}; of that gain, forward, backward "
        "and optimizer have 40, 80 or 100 %.",
        effect=divide(*COMPUTE, by=(low, expected, high)),
        memory=0,
        intervention=Intervention(name="flags", settings={"threads": best}, safety=Safety.NUMERICS),
        risk="Low: sums are taken in another order, so results may differ in their last digits.",
    )


def _who(m: Metrics) -> str:
    if m[threads_from] == "environment":
        return "OMP_NUM_THREADS or MKL_NUM_THREADS has set the number of threads"
    return "nobody has set the number of threads: torch takes one a core"


RULE = Rule(
    title="Compute with the fastest number of threads",
    tier=Tier.VALIDITY,
    when=when,
    then=then,
    confidence=Confidence.EMPIRICAL,
    difficulty=1,
    sources=(
        Source(
            "PyTorch: CPU threading and TorchScript inference",
            "https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html",
        ),
        Source(
            "PyTorch Performance Tuning Guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        ),
    ),
)
