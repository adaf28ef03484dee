"""The CPU threads that a program computes with: their number, who set it, and how fast other numbers are."""

import math

from advisor.metrics.base import Metrics, Missing, Threshold, known, metric
from advisor.metrics.host import cores_per_rank, local_ranks, worker_cpu
from advisor.metrics.settings import flags, on_cpu, primary_rank
from advisor.metrics.step import backward_fraction, forward_fraction, optimizer_fraction
from profiler.schema import MatmulFact, ThreadsFact

MIN_COMPUTE = Threshold(0.3, "Below this, a matmul 1.3 times as fast saves less than 7 % of the step.")

EQUALLY_FAST = 1.05
"""Factor over the shortest time within which numbers of threads count as equally fast (assumption).

The smallest of them is best, because it leaves more cores to the loader.
"""


@metric("count", "CPU threads of a rank")
def threads(m: Metrics) -> int:
    """Number of threads that torch uses within an operator."""
    remedy = "Let the run continue for more than ten steps."
    return known(m[flags].threads, "The number of threads was not read", remedy)


@metric(None)
def threads_from(m: Metrics) -> str:
    """Who set the number of threads: "program" (torch.set_num_threads), "environment" or "default"."""
    remedy = "Start the program with profile-train."
    return known(m[flags].threads_from, "The origin of the number of threads was not observed", remedy)


@metric("count", "threads of all ranks on this machine")
def thread_demand(m: Metrics) -> int:
    """Threads that all ranks of the node compute with together."""
    return m[threads] * m[local_ranks]


@metric("count", "cores for the threads of a rank")
def cores_for_threads(m: Metrics) -> int:
    """Cores for the threads of one rank: its cores minus those that its DataLoader workers use; at least 1."""
    return max(1, math.floor(m[cores_per_rank] - (m.get(worker_cpu) or 0.0) / m[local_ranks]))


@metric("1", "share of the step computing")
def compute_fraction(m: Metrics) -> float:
    """Share of the step in the forward pass, the backward pass and the optimizer."""
    return m[forward_fraction] + m[backward_fraction] + m[optimizer_fraction]


@metric(None)
def largest_matmul(m: Metrics) -> MatmulFact:
    """The largest matmul of a linear layer."""
    return known(
        m[primary_rank].matmul,
        "No matmul of a linear layer was observed",
        "Nothing to do, if the model has none or is compiled: try other values of torch.set_num_threads yourself.",
    )


@metric(None)
def threads_to_try(m: Metrics) -> tuple[int, ...]:
    """The numbers of threads to try: the current one, and 1, 2, 4 ... up to the available cores.

    Empty on a GPU, or if the program sets the number.
    """
    if not m[on_cpu] or m[threads_from] == "program":
        return ()
    cores = m[cores_for_threads]
    powers = {2**power for power in range(cores.bit_length())}
    numbers = sorted({m[threads], cores, *powers})
    return tuple(numbers) if len(numbers) > 1 else ()


@metric(None)
def thread_probe(m: Metrics) -> dict[int, float]:
    """Seconds of the largest matmul by number of threads, measured after the program ended."""
    fact: ThreadsFact | None = m[primary_rank].threads
    if fact is None or m[threads] not in fact.seconds or not all(seconds > 0 for seconds in fact.seconds.values()):
        raise Missing(
            "Other numbers of threads were not tried",
            "Record half a minute or more with profile-train, on an idle machine. Small matmuls are not tried.",
        )
    return fact.seconds


@metric("count", "fastest number of threads")
def best_threads(m: Metrics) -> int:
    """The number of threads with the fastest largest matmul, among those that fit the cores.

    If several are equally fast, the smallest.
    """
    times = {number: seconds for number, seconds in m[thread_probe].items() if number <= m[cores_for_threads]}
    if not times:
        raise Missing("No number of threads that fits the cores was tried", "Record the run again.")
    return min(number for number, seconds in times.items() if seconds <= EQUALLY_FAST * min(times.values()))


@metric("1", "speed-up of matmuls from another number of threads")
def thread_gain(m: Metrics) -> float:
    """Speed-up of the largest matmul with the best number of threads over the current number."""
    return m[thread_probe][m[threads]] / m[thread_probe][m[best_threads]]
