"""The threads a program computes with on a CPU: how many, who has set that number, and what others would bring."""

from __future__ import annotations

import math

from advisor.metrics.base import Metrics, Missing, Threshold, metric
from advisor.metrics.host import cores_per_rank, local_ranks, worker_cpu
from advisor.metrics.settings import flags, on_cpu, primary_rank
from advisor.metrics.step import backward_fraction, forward_fraction, optimizer_fraction
from profiler.schema import MatmulFact, ThreadsFact

MIN_COMPUTE = Threshold(0.3, "Of less, a product 1.3 times as fast leaves less than 7 % of the step to gain.")

EQUALLY_FAST = 1.05
"""Times the shortest: within it numbers of threads count as equal (assumption), and the least of them is best, for the
others leave fewer cores to the loader."""


@metric("count", "threads a rank computes with")
def threads(m: Metrics) -> int:
    """Threads that torch uses within an operator."""
    number = m[flags].threads
    if number is None:
        raise Missing("The number of threads was not read", "Let the run go on past its first ten steps.")
    return number


@metric(None)
def threads_from(m: Metrics) -> str:
    """Who has set the number of threads: "program" (torch.set_num_threads), "environment" or "default"."""
    source = m[flags].threads_from
    if source is None:
        raise Missing("Nobody saw who set the number of threads", "Start the program with profile-train.")
    return source


@metric("count", "threads of all ranks on this machine")
def thread_demand(m: Metrics) -> int:
    """Threads that the ranks of the node compute with together."""
    return m[threads] * m[local_ranks]


@metric("count", "cores for the threads of a rank")
def cores_for_threads(m: Metrics) -> int:
    """Cores for the threads of one rank: its part, less what its DataLoader workers use; at least 1."""
    return max(1, math.floor(m[cores_per_rank] - (m.get(worker_cpu) or 0.0) / m[local_ranks]))


@metric("1", "share of the step computing")
def compute_fraction(m: Metrics) -> float:
    """Share of the step in the forward pass, the backward pass and the optimizer."""
    return m[forward_fraction] + m[backward_fraction] + m[optimizer_fraction]


@metric(None)
def largest_matmul(m: Metrics) -> MatmulFact:
    """The largest product of a linear layer."""
    fact = m[primary_rank].matmul
    if fact is None:
        raise Missing(
            "No product of a linear layer was seen",
            "Nothing, if the model has none or is compiled: try other numbers of torch.set_num_threads by hand.",
        )
    return fact


@metric(None)
def threads_to_try(m: Metrics) -> tuple[int, ...]:
    """The number there is, and 1, 2, 4 ... up to the cores for it; none on a GPU, or if the program has chosen."""
    if not m[on_cpu] or m[threads_from] == "program":
        return ()
    cores = m[cores_for_threads]
    doubling = {2**power for power in range(cores.bit_length())}
    numbers = sorted({m[threads], cores, *doubling})
    return tuple(numbers) if len(numbers) > 1 else ()


@metric(None)
def thread_probe(m: Metrics) -> dict[int, float]:
    """Seconds of the largest matrix product by number of threads, measured after the program had ended."""
    fact: ThreadsFact | None = m[primary_rank].threads
    if fact is None or m[threads] not in fact.seconds or not all(each > 0 for each in fact.seconds.values()):
        raise Missing(
            "Other numbers of threads were not tried",
            "Record while nothing else runs, and let profile-train make its report as the program ends.",
        )
    return fact.seconds


@metric("count", "threads that are fastest")
def best_threads(m: Metrics) -> int:
    """The number with which the largest product is fastest, of those that there are cores for; of equals, the least."""
    tried = {number: each for number, each in m[thread_probe].items() if number <= m[cores_for_threads]}
    if not tried:
        raise Missing("No number of threads was tried that there are cores for", "Record the run again.")
    return min(number for number, each in tried.items() if each <= EQUALLY_FAST * min(tried.values()))


@metric("1", "speed-up of matrix products by other threads")
def thread_gain(m: Metrics) -> float:
    """How many times as fast the largest product is with the best number of threads."""
    return m[thread_probe][m[threads]] / m[thread_probe][m[best_threads]]
