"""Reasons why a run on a GPU has no profiler windows, and what to do about them."""

from advisor.metrics.base import Metrics, Missing, Need
from advisor.metrics.settings import gpu_need, primary_rank

WHAT = "No kernels were recorded"

REMEDIES = {
    "off": "Record without --no-windows and with a budget above 0.",
    "too_few_steps": "Record at least 60 steps: profiler windows open once the step time settles.",
    "budget": "Record for longer, or allow more overhead: --budget 0.05.",
    "steps_too_long": "Record with smaller steps: one step of this run exceeds the limit of a window.",
    "program_profiler": "Turn off the program's own profiler: torch.profiler supports one user at a time.",
    "other_tool": (
        "Record without Nsight Systems and other injected libraries: GPU tracing supports one user at a time."
    ),
    "kineto_daemon": "Unset KINETO_USE_DAEMON: profiler windows would end the traces that its daemon requests.",
    "cuda_graphs": "Use torch for CUDA 12 or newer: profiling CUDA graphs may hang on older ones.",
    "memory": "Leave 1 GiB of the GPU's memory free, for example with a smaller batch.",
    "failed": "See the problems listed in the report.",
}
"""Remedies by `schema.WindowsFact.reason`."""


def no_window(m: Metrics) -> Missing:
    """Return the error to raise if a metric needs profiler windows and the run has none."""
    need, state = gpu_need(m), m[primary_rank].window_state
    if need is Need.GPU or state is None or state.reason is None:
        return Missing(WHAT, "Run on a GPU, for at least 60 steps, with windows enabled.", need)
    return Missing(WHAT, REMEDIES.get(state.reason, REMEDIES["failed"]), need)
