"""The run uses more GPUs, or larger ones, than it needs.

Each additional GPU gains less than the previous one, because reducing gradients takes longer and all GPUs wait for it.
Half as many GPUs, each with twice as many samples per update, make the same updates in fewer GPU-hours, but take more
time. A GPU that is half idle and half empty could be replaced by one of half the size, or by a slice of it (MIG).

Wrong when: time matters more to you than cost, the GPUs wait for one slow rank (fix that first), or later runs will be
larger than the recorded one.

Source: Bekman, Machine Learning Engineering, https://github.com/stas00/ml-engineering
Source: NVIDIA, Multi-Instance GPU user guide, https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
"""

from advisor.metrics import Metrics, Threshold, communication, gpu, memory, settings, sharding, step
from advisor.models.memory import FILL
from advisor.models.sharding import all_reduce_bytes
from advisor.rules._phases import exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, bash, measure
from advisor.units import seconds, share

RULE = Rule("Use fewer or smaller GPUs", Area.COST, Confidence.HEURISTIC, difficulty=2, cap=Severity.SUGGEST)

MAX_EXPOSED = Threshold(
    0.3, "Share of the step in exposed communication; above this, scaling efficiency is below 70 % (assumption)."
)
MAX_BUSY = Threshold(0.5, "Share of the time and of the memory; below this, a GPU of half the size would be enough.")
MAX_WAIT = Threshold(0.05, "Above this share, fix data loading first: the GPU is idle because it waits for data.")


def when(m: Metrics) -> Evidence | None:
    """If no more memory is needed, and either exposed communication takes more than 30 % of the step and the model fits
    on half of the GPUs, or the GPU is busy at most 50 % of the time (not because of data loading) and at most 50 % of
    its memory is used,
    """
    if m.goals.more_memory or m[memory.memory_pressure]:
        return None
    if _scales_badly(m):
        facts = (
            measure(m, communication.exposed_comm_seconds, ">", m[MAX_EXPOSED] * m[step.step_time_mean]),
            measure(m, settings.world_size, ">=", 2),
            measure(m, memory.mem_headroom),
        )
        return Evidence(facts)
    is_fed = (m.get(step.data_wait_fraction) or 0.0) < m[MAX_WAIT]
    if not is_fed or m[gpu.gpu_busy_fraction] > m[MAX_BUSY] or 1 - m[memory.mem_headroom] > m[MAX_BUSY]:
        return None
    return Evidence(
        (measure(m, gpu.gpu_busy_fraction, "<=", MAX_BUSY), measure(m, memory.mem_headroom, ">=", 1 - m[MAX_BUSY]))
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then train on half as many GPUs or on smaller ones, if cost matters more than time."""
    return _fewer(m) if _scales_badly(m) else _smaller(m)


def _fewer(m: Metrics) -> Advice:
    gpu_count, step_time, exposed_seconds = m[settings.world_size], m[step.step_time_mean], exposed(m)
    half_count = gpu_count // 2
    # Shares of the exposed communication that remain per update: a single GPU has none.
    remaining_shares = (
        0.0 if half_count == 1 else 1.0,
        all_reduce_bytes(1, half_count) / all_reduce_bytes(1, gpu_count),
        0.0,
    )
    step_times = [
        (step_time - exposed_seconds) * gpu_count / half_count + exposed_seconds * remaining_share
        for remaining_share in remaining_shares
    ]
    low, expected, high = (1 - half_count / gpu_count * new_time / step_time for new_time in step_times)
    gpu_text = "one GPU" if half_count == 1 else f"{half_count} GPUs, each"
    multiple = "twice" if gpu_count == 2 * half_count else f"{gpu_count / half_count:.3g} times"
    return Advice(
        then=f"Train on {gpu_text} with {multiple} as many samples per update, by accumulating gradients, instead of "
        f"on {gpu_count}: the same updates, {share(expected)} fewer GPU-hours, {seconds(step_times[1])} a step instead "
        f"of {seconds(step_time)}.",
        changes=(
            bash(
                f"torchrun --nproc-per-node={half_count} train.py  # on one node; {multiple} the samples per GPU and "
                "update\n"
            ),
        ),
        basis="(G1/G0)(T1/T0): fewer GPUs do everything except the exposed communication. Of that, everything stays "
        "(cautious), it shrinks like the volume of a ring all-reduce (expected), or it disappears (best case).",
        cost=(low, expected, high),
        risk="Low: the same samples per update. The training takes longer.",
    )


def _smaller(m: Metrics) -> Advice:
    device = m[gpu.device]
    return Advice(
        then=f"A GPU half as large would be enough: {device.name} is busy for {share(m[gpu.gpu_busy_fraction])} of the "
        f"time, and {share(1 - m[memory.mem_headroom])} of its memory is used. First check whether other advice can "
        "use the rest. If not, take a smaller GPU, a slice of this one (MIG), or let two training runs share it (MPS).",
        changes=(bash("nvidia-smi mig -lgip  # lists the slices that this GPU supports\n"),),
        basis="No prediction: profile-train does not know the price of a smaller GPU.",
        risk="Low: the same program. Kernels take longer on a smaller GPU; record a short run on it first.",
    )


def _scales_badly(m: Metrics) -> bool:
    """Return whether communication is the limit and half of the GPUs could hold the model.

    Sharded states may take twice as much of each remaining GPU.
    """
    if m[settings.data_parallel_size] < m[settings.world_size]:
        return False  # the model is spread over a mesh: half of it is a different program
    if not sharding.data_parallel(m) or exposed(m) <= m[MAX_EXPOSED] * m[step.step_time_mean]:
        return False
    added_bytes = 0.0 if m[settings.flags].ddp and not m[settings.flags].zero_stage else sharding.states(m).total
    return memory.filled(m, added_bytes) <= FILL
