"""The GPU waits for the host to launch many tiny kernels.

A launch takes the host a few microseconds, whatever the kernel does. If kernels are shorter than that, the GPU is idle
between them, and neither a faster GPU nor lower precision helps. A CUDA graph launches all kernels of a step at once.
Larger batches and fused operations result in fewer, longer kernels.

Wrong when: shapes or control flow change from step to step, or parts of the step run on the CPU: a graph replays the
recorded kernels at the same addresses. `torch.compile` does not support GPUs below compute capability 7.0.

Source: PyTorch: Accelerating PyTorch with CUDA Graphs, https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/
Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
Source: Bekman, Machine Learning Engineering, https://github.com/stas00/ml-engineering
"""

from advisor.metrics import Metrics, Threshold, gpu, operators, settings
from advisor.models.effects import remove_launch_idle
from advisor.models.gpus import VOLTA
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, bash, evidence, measure
from advisor.rules.compile_model import compile_intervention
from advisor.units import share

RULE = Rule("Launch the step as a CUDA graph", Area.KERNELS, Confidence.EMPIRICAL, supersedes=("compile-model",))

MIN_LAUNCH_BOUND = Threshold(
    0.3, "The GPU then waits for launches for about a third of the time in which it does not wait for anything else."
)

MIN_COMPILED = Threshold(
    0.15, "For a compiled model, with kernels of any length: they are already fused, so only a CUDA graph can help."
)

MAX_KERNEL_US = Threshold(10.0, "A launch takes the host 5 to 10 us: half of the kernels are shorter.")

SEVERAL = 3
"""Separately compiled functions from which on graph breaks are likely; a model and its loss are two (assumption)."""

LOG = "TORCH_LOGS=graph_breaks,perf_hints python train.py  # logs each break's line, and why a graph is skipped\n"

# Share of the launch idle time that is saved (assumption): parts that cannot be captured keep theirs.
REMOVED = (0.5, 0.75, 0.9)


def when(m: Metrics) -> Evidence | None:
    """If late launches leave the GPU idle for at least 30 % of the time and half of the kernels take less than 10 us,
    or for at least 15 % in a trace of a compiled model, and the program does not replay CUDA graphs,
    """
    launch_bound = measure(m, gpu.launch_bound_index, ">=", MIN_LAUNCH_BOUND)
    kernel_length = measure(m, gpu.median_kernel_us, "<", MAX_KERNEL_US)
    if m[gpu.compute_capability] < VOLTA or m.get(gpu.replays_graphs):
        return None
    if m.get(settings.is_trace) and m.get(gpu.is_compiled) and launch_bound.value >= m[MIN_COMPILED]:
        return evidence(measure(m, gpu.launch_bound_index, ">=", MIN_COMPILED), note=f"{m[gpu.device].name}, compiled")
    return evidence(launch_bound, kernel_length, note=m[gpu.device].name)


def then(m: Metrics, found: Evidence) -> Advice:
    """then launch the step as a CUDA graph, or make its kernels fewer and longer."""
    functions = m.get(operators.compiled_functions) or 0
    break_note = (
        f" {functions} functions are compiled separately, each with its own graph: remove graph breaks first."
        if functions >= SEVERAL
        else ""
    )
    log_changes = (bash(LOG),) if m.get(gpu.is_compiled) else ()
    return Advice(
        then=f"Launch the step as a CUDA graph: the GPU idles {share(m[gpu.launch_bound_index])} of its time between "
        f"kernels. A larger batch and fewer small operations help as well.{break_note}",
        changes=(*spelling(m).compile(mode="reduce-overhead"), *log_changes),
        basis="50, 75 or 90 % of the time that the GPU waits for launches is saved, and the same share of the host's "
        "launch time.",
        effect=remove_launch_idle(REMOVED),
        intervention=compile_intervention(m, "reduce-overhead"),
        risk="Medium: shapes must stay the same, and each step overwrites the outputs of the previous one (clone "
        "what you keep). A graph keeps the memory of its activations.",
    )
