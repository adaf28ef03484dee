"""The program does not set its number of CPU threads, and another number is faster.

torch uses one thread per core, even if a container may use only some of the cores. torchrun and other launchers set
OMP_NUM_THREADS=1, so that ranks do not compete for cores. The best number depends on the sizes of the matmuls: with
small matmuls, threads spend more time waiting for each other than computing. To find it, profile-train timed the
program's largest matmul with several numbers of threads after the program had ended.

Wrong when: other programs share the cores during training, or most of the time goes into operations other than
matmuls. A number that the program sets itself is respected.

Source: PyTorch: CPU threading and TorchScript inference, https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html
Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Threshold, host, settings, threads
from advisor.metrics.threads import MIN_COMPUTE
from advisor.models.effects import LAUNCHED, divide
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, bash, measure, python

RULE = Rule("Use the fastest number of threads", Area.VALIDITY, Confidence.EMPIRICAL)

MIN_GAIN = Threshold(1.3, "On busy machines, repeated timings of one matmul differ by up to a fifth (measured).")

MIN_GAIN_ALONE = Threshold(
    1.05, "With one rank, the trial has measured what too many threads cost; below this gain they do no harm."
)

# Share of the largest matmul's gain that all computation gets: small matmuls and other operators gain less
# (assumption).
PASSED_ON = (0.4, 0.8, 1.0)


def when(m: Metrics) -> Evidence | None:
    """If the step computes on the CPU, the program does not set its number of threads, and either the largest matmul
    was at least 1.3 times as fast with another number or all ranks together have more threads than cores,
    """
    if not m[settings.on_cpu] or m[threads.threads_from] == "program" or m[threads.compute_fraction] < m[MIN_COMPUTE]:
        return None
    gain = measure(m, threads.thread_gain, ">=", MIN_GAIN)
    demand = measure(m, threads.thread_demand, ">", m[host.cores_allowed])
    facts = [gain] if gain.holds else []
    is_crowded = m[host.local_ranks] > 1 or gain.value >= m[MIN_GAIN_ALONE]
    if demand.holds and m[threads.best_threads] < m[threads.threads] and is_crowded:
        facts.append(demand)
    source = (
        "OMP_NUM_THREADS or MKL_NUM_THREADS has set the number of threads"
        if m[threads.threads_from] == "environment"
        else "nothing has set the number of threads: torch uses one per core"
    )
    return Evidence((*facts, measure(m, threads.best_threads)), source) if facts else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then set the fastest number of threads."""
    best_threads, old_threads = m[threads.best_threads], m[threads.threads]
    scope = " in each rank" if m[host.local_ranks] > 1 else ""
    gain = max(1.0, m[threads.thread_gain])
    low, expected, high = (1 / (1 - share * (1 - 1 / gain)) for share in PASSED_ON)
    return Advice(
        then=f"Compute with {best_threads} thread{'s' if best_threads > 1 else ''}{scope} instead of {old_threads}.",
        changes=(
            bash(f"export OMP_NUM_THREADS={best_threads}  # before the program or launcher\n"),
            python(
                f"import torch\n\ntorch.set_num_threads({best_threads})  # first statement; DataLoader workers keep "
                "using 1\n"
            ),
        ),
        basis=f"The largest matmul took 1/{gain:.2f} of its time with {best_threads}; forward, backward and optimizer "
        "get 40, 80 or 100 % of that gain. The effect of ranks that compete for cores is not predicted.",
        effect=divide(*LAUNCHED, by=(low, expected, high)) if gain > 1 else None,
        memory=0,
        intervention=Intervention(name="flags", settings={"threads": best_threads}, safety=Safety.NUMERICS),
        risk="Low: sums run in another order, so results may differ in their last digits.",
    )
